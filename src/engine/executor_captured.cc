#include "engine/executor_captured.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/errors.h"
#include "config/gpu_memory.h"
#include "engine/suspect_error.h"

namespace tandem {
namespace {

constexpr int kEagerRuns = 2;  // libraries choose and allocate in the first ones

struct LeaveBranch {
  GpuDevice& gpu;
  ~LeaveBranch() { gpu.branch(-1); }
};

}  // namespace

std::vector<int64_t> CapturedExecutor::total_counts(const std::vector<std::vector<int64_t>>& by_shard) {
  std::vector<int64_t> total;
  for (const std::vector<int64_t>& counts : by_shard) {
    total.resize(counts.size());
    for (size_t k = 0; k < counts.size(); ++k) total[k] += counts[k];
  }
  return total;
}

std::string eager_asked_for() {
  const char* blocking = std::getenv("CUDA_LAUNCH_BLOCKING");
  const char* asked = std::getenv("TANDEM_GRAPHS");
  const std::string_view graphs = asked && *asked ? asked : "on";
  if (graphs != "on" && graphs != "off")
    throw ConfigError(fmt::format("TANDEM_GRAPHS={} is not known", graphs), "it is on or off", "set one of these");
  if (blocking && std::string_view(blocking) == "1") return "CUDA_LAUNCH_BLOCKING=1";
  if (graphs == "off") return "TANDEM_GRAPHS=off";
  return "";
}

std::unique_ptr<Executor> make_captured(ShardRunner& shards, const PhaseRun& run) {
  if (!shards.gpu() || !run.phase->capturable || run.set || !eager_asked_for().empty()) return nullptr;
  return std::make_unique<CapturedExecutor>(shards, run);
}

CapturedExecutor::CapturedExecutor(ShardRunner& shards, const PhaseRun& run)
    : PhaseExecutor(shards),
      gpu_(*shards.gpu()),
      outputs_(*shards.sums(run).outputs()),
      state_(shards),
      groups_(std::make_unique<ShardGroups>(shards, run)),
      alone_(run.last && run.index == 0) {
  if (run.phase->exchange)
    use_eager(*run.phase, "it sends messages, which go through the host; rows of all_to_all stay on the device");
}

DeviceCombine& CapturedExecutor::device_combine() {
  DeviceCombine* const combine = shards_.combine().as_device();
  if (!combine) throw std::logic_error("this combine takes no contributions from a GPU");
  return *combine;
}

PhaseResult CapturedExecutor::run(const PhaseRun& run) {
  if (!why_eager_.empty()) return run_serially(run);
  shards_.begin(run);
  shards_.state().use_contribution(0);
  shards_.keep_batches(true);
  if (has_step_graph(run)) return launch_step(run);
  run_shards(run);
  if (group_size_ > 1 && run.phase->gradients && has_bad()) {  // which shard it was shows when they run one by one
    queue_eagerly(run);
    outputs_.queue_fetch(nullptr);
    shards_.device().wait();
  }
  shards_.read_sums(run);
  shards_.add_sums(run);
  shards_.batches().forget_before(run.step);
  PhaseResult result{.total = shards_.finish(run)};
  if (run.phase->gradients) launch_update(run, result);
  if (!result.applied) result.floats = shards_.floats_of(run, result.total);
  if (std::exchange(trim_, false)) {
    shards_.device().wait();
    gpu_.trim();
  }
  return result;
}

PhaseResult CapturedExecutor::run_serially(const PhaseRun& run) {
  if (!serial_) serial_ = make_serial(shards_, std::move(groups_));
  if (std::exchange(trim_, false)) {
    shards_.device().wait();
    gpu_.trim();
  }
  return serial_->run(run);
}

void CapturedExecutor::run_shards(const PhaseRun& run) {
  const bool may_replay = why_eager_.empty() && shards_.batches().is_full(*run.phase, run.step);
  if (may_replay && agreed_ >= kTimesEqual && !compares_again(run) && stage_inputs(run, run.step))
    return replay_shards(run);
  const bool compare = may_replay && shards_.runs_here(run) >= kEagerRuns;
  const std::vector<at::Tensor> state =
      compare && run.phase->changes_state ? state_.saved() : std::vector<at::Tensor>();
  trim_ = trim_ || !state.empty();
  gpu_.begin_peak();
  queue_eagerly(run);
  if (compare) try_capture(run, state);
  shards_.send_mail(run);
  outputs_.queue_fetch(nullptr);
  shards_.wait();
  shards_.shard_ends(shards_.count() - 1);
}

void CapturedExecutor::replay_shards(const PhaseRun& run) {
  shards_.shard_begins(0);
  queue_inputs(run);
  shards_graph_->replay();
  stage_ahead_and(run, [this] { return shards_.wait(); });
  reset_scratch(run);
  if (AllToAll* mail = shards_.mail(run.index); mail && !mail->is_local()) shards_.send_mail(run);
  device_combine().set_partial_sums(partials_);
  shards_.report_all_ended();
}

// What is kept from the first run on (by libraries, by the recipe) must not lie where replays write.
void CapturedExecutor::queue_eagerly(const PhaseRun& run) {
  if (began_ && why_eager_.empty()) return gpu_.in_work_memory([&] { queue_shards(run); });
  const bool first = !std::exchange(began_, true);
  const Bits before = first && !run.phase->changes_state ? state_.bits() : Bits();
  queue_shards(run);
  if (!first) return;
  shards_.device().wait();
  if (!run.phase->changes_state && state_.bits() != before)
    throw std::logic_error("phase '" + run.phase->name + "' changes its shards' state: let it say changes_state");
  gpu_.trim();
}

// Small shards leave most of a GPU idle: several run side by side, each with a vector of its own. The sums are made in
// the same order, so the bits are the same.
void CapturedExecutor::queue_shards(const PhaseRun& run, int branches) {
  device_combine().begin_floats();
  shards_.clear_sums(run);
  const LeaveBranch in_any_case{gpu_};
  const int count = shards_.count();
  JobState& state = shards_.state();
  std::vector<std::span<const float>> floats(static_cast<size_t>(count));
  for (int first = 0; first < count; first += branches) {
    const int last = std::min(count, first + branches);
    if (branches > 1) gpu_.fork(last - first);
    for (int i = first; i < last; ++i) {
      if (branches > 1) gpu_.branch(i - first);
      if (run.phase->gradients) state.use_contribution(i - first);
      floats[static_cast<size_t>(i)] = shards_.run_shard(run, i, i - first);
      if (i + 1 < count) shards_.shard_ends(i);
    }
    if (branches > 1) gpu_.join(last - first);
    for (int i = first; i < last; ++i)
      shards_.combine().add_floats(shards_.order()[static_cast<size_t>(i)], floats[static_cast<size_t>(i)],
                                   /*stays=*/last == count);
  }
  if (run.phase->gradients) state.use_contribution(0);
}

void CapturedExecutor::queue_groups(const PhaseRun& run) {
  device_combine().begin_floats();
  shards_.clear_sums(run);
  shards_.state().use_contribution(0);
  std::vector<ShardGroup> groups = shards_.groups(group_size_);
  for (ShardGroup& group : groups) {
    shards_.run_group(run, group, 0);
    for (const PassPart& part : group.parts)
      shards_.combine().add_partial(part.node, part.vector, /*stays=*/&group == &groups.back());
  }
}

void CapturedExecutor::queue_captured(const PhaseRun& run) {
  if (group_size_ > 1)
    queue_groups(run);
  else
    queue_shards(run, branches_);
}

int CapturedExecutor::branches_for(const PhaseRun& run, size_t bytes_at_work) {
  const size_t vector = static_cast<size_t>(shards_.layout_of(*run.phase, run.last).floats) * sizeof(float);
  const auto room = static_cast<int64_t>(gpu_.free_bytes() / 4 / std::max<size_t>(bytes_at_work + vector, 1));
  const int64_t branches = most_side_by_side(shards_.count(), static_cast<int64_t>(vector));
  return static_cast<int>(std::clamp<int64_t>(room, 1, branches));
}

// ---- capture and comparison ----

// Captures the phase and replays it on the inputs of the eager run just made. If the bits are the same, twice, the
// graph serves from then on; else the phase stays eager, and the run says why. A graph that served and differs now ends
// the run: what it gave before may have been wrong.
void CapturedExecutor::try_capture(const PhaseRun& run, const std::vector<at::Tensor>& state) {
  outputs_.queue_fetch(nullptr);
  shards_.device().wait();
  const Bits eager = fingerprint(run, device_combine().partial_sums());
  std::vector<std::vector<int64_t>> counts;
  for (int i = 0; i < shards_.count(); ++i) counts.push_back(shards_.scratch(i).counts);
  std::string refused = sums_on_host(run);
  if (!refused.empty() && agreed_ >= kTimesEqual) went_stale(run);
  state_.restore(state);
  if (refused.empty() && !shards_graph_) capture_shards(run, state, &refused);
  if (refused.empty() && stage_inputs(run, run.step)) {
    if (replays_alike(run, eager, counts)) {
      ++agreed_;
      groups_->was_equal(run.step);
      reset_scratch(run);
      device_combine().set_partial_sums(partials_);
      return;
    }
    if (agreed_ >= kTimesEqual) went_stale(run);
    refused = "its CUDA graph gave other bits than the eager run";
  }
  if (!refused.empty()) use_eager(*run.phase, refused);
  state_.restore(state);
  queue_eagerly(run);
}

std::string CapturedExecutor::sums_on_host(const PhaseRun& run) {
  const auto not_zero = [](auto x) { return x != 0; };
  for (int i = 0; i < shards_.count(); ++i) {
    const ShardScratch& scratch = shards_.scratch(i);
    if (std::ranges::any_of(scratch.floats, not_zero) ||
        std::any_of(scratch.maxima.begin(), scratch.maxima.begin() + run.phase->maxima, not_zero))
      return "its run() adds up context.floats or context.maxima on the host";
  }
  return "";
}

void CapturedExecutor::capture_shards(const PhaseRun& run, const std::vector<at::Tensor>& state, std::string* refused) {
  const size_t bytes_at_work = gpu_.peak_bytes();
  group_size_ = groups_->size(run);
  if (group_size_ > 1) gpu_.trim();
  branches_ = group_size_ > 1 ? 1 : branches_for(run, bytes_at_work);
  if (branches_ > 1) {  // libraries allocate the workspaces of each branch now, not during capture
    gpu_.in_work_memory([&] { queue_shards(run, branches_); });
    shards_.device().wait();
    state_.restore(state);
  }
  if (!stage_inputs(run, run.step)) return;
  queue_inputs(run);
  shards_graph_ = gpu_.capture(
      [this, run] {
        const ShardRunner::FromStaging staged(shards_, *staging_);
        queue_captured(run);
        shards_.send_mail(run);
        outputs_.queue_fetch(nullptr);
      },
      refused);
  host_counts_.clear();
  for (int i = 0; i < shards_.count(); ++i) host_counts_.push_back(shards_.scratch(i).counts);
  if (shards_graph_) partials_ = device_combine().partial_sums();
}

bool CapturedExecutor::replays_alike(const PhaseRun& run, const Bits& eager,
                                     const std::vector<std::vector<int64_t>>& counts) {
  queue_inputs(run);
  shards_graph_->replay();
  shards_.device().wait();
  return total_counts(host_counts_) == total_counts(counts) && fingerprint(run, partials_) == eager;
}

// The bits of what a phase gave: its sums, its rows for others and its integers; and the state that it changed.
CapturedExecutor::Bits CapturedExecutor::fingerprint(const PhaseRun& run, const Partials& partials) {
  Bits bits;
  Device& device = shards_.device();
  for (const auto& partial : partials)
    bits.push_back(device.state_hash(partial.values.data(), static_cast<int64_t>(partial.values.size_bytes())));
  // Shards that run in one pass count together.
  std::vector<std::vector<int64_t>> counts;
  for (int index = 0; index < shards_.count(); ++index)
    counts.emplace_back(outputs_.counts(index).begin(), outputs_.counts(index).end());
  for (const int64_t count : total_counts(counts)) bits.push_back(static_cast<uint64_t>(count));
  bits.push_back(has_bad() ? 1 : 0);
  if (const AllToAll* mail = shards_.mail(run.index))
    bits.push_back(device.state_hash(mail->sent().data(), static_cast<int64_t>(mail->sent().size())));
  if (run.phase->changes_state)
    for (const uint64_t word : state_.bits()) bits.push_back(word);
  return bits;
}

void CapturedExecutor::use_eager(const Phase& phase, const std::string& why) {
  shards_graph_.reset();
  step_graph_.reset();
  why_eager_ = why;
  trim_ = true;  // what its runs in work memory took is needed elsewhere now
  shards_.note(fmt::format("phase '{}' runs eagerly, not as one CUDA graph: {}", phase.name, why));
}

// The eager run went shard by shard. So where the graph has several to a pass, such passes are compared outside of it
// first: that throws where they differ by themselves, with the layer.
void CapturedExecutor::went_stale(const PhaseRun& run) {
  const int64_t equal_at = groups_->equal_at();
  std::string outside;
  try {
    if (group_size_ > 1) groups_->compare(run);
    if (group_size_ > 1) outside = "passes of as many shards outside the graph give the right bits, so ";
  } catch (const SuspectError&) {
    throw;
  } catch (const std::exception& error) {  // it says less then, and ends the run all the same
    const std::string said = error.what();
    outside = fmt::format("where: not found ({}); ", said.substr(0, said.find('\n')));
  }
  const std::string passes = group_size_ > 1 ? fmt::format(", {} shards to a pass,", group_size_) : "";
  throw SuspectError(
      fmt::format("the CUDA graph of phase '{}'{} gives other bits than its calls shard by shard, at step {}",
                  run.phase->name, passes, run.step),
      fmt::format("{}what run() does has changed since its capture (a condition on the step, a coefficient from the "
                  "host), or this GPU errs; they were equal at step {}, and what was trained since may be wrong",
                  outside, equal_at),
      "let the recipe say that the phase is not capturable (SupervisedRecipe::capturable); look at the memory of this "
      "GPU: `tandem doctor`",
      equal_at, "TANDEM_GRAPHS=off");
}

// As run_shard() leaves it, for shards of a replayed graph.
void CapturedExecutor::reset_scratch(const PhaseRun& run) {
  for (int i = 0; i < shards_.count(); ++i) {
    ShardScratch& scratch = shards_.scratch(i);
    scratch.counts = host_counts_[static_cast<size_t>(i)];
    scratch.maxima.assign(static_cast<size_t>(shards_.layout_of(*run.phase, run.last).maxima), 0);
    scratch.messages.clear();
    if (run.last) scratch.maxima.back() = run.request;
  }
}

// ---- inputs ----

// False, with the reason in why_eager_, where they can't be staged.
bool CapturedExecutor::stage_inputs(const PhaseRun& run, int64_t step) {
  if (staged_step_ == step) return true;
  const Phase& phase = *run.phase;
  const int64_t micro_batches = shards_.micro_batches(phase);
  PhaseRun at = run;
  at.step = step;
  for (int index = 0; index < shards_.count(); ++index) {
    ShardContext context = shards_.bare_context(at, shards_.order()[static_cast<size_t>(index)]);
    for (int64_t micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
      context.micro_batch = micro_batch;
      Batch batch;
      if (phase.batches) batch = shards_.batches().get(at, context.shard, micro_batch, /*keep=*/true);
      const Batch* const made = phase.batches ? &batch : nullptr;
      const std::vector<at::Tensor> tensors = shards_.staged_inputs(at, context, made);
      const int place = static_cast<int>(index * micro_batches + micro_batch);
      if (!staging_) {
        staging_ = std::make_unique<InputStaging>(static_cast<int>(shards_.count() * micro_batches), tensors, made,
                                                  gpu_.copy_stream());
        only_batches_ = made && tensors.size() == batch.tensors.size() + 1;
      }
      if (!staging_->fits(tensors)) {
        use_eager(phase, "its inputs change their sizes between steps or shards, or lie on the GPU already");
        return false;
      }
      staging_->put(host_copy(step), place, context.random(0), tensors, made);
    }
  }
  staging_->put(host_copy(step), shards_.update().params(0));
  staged_step_ = step;
  return true;
}

// They may have been staged before the last update was settled, which changes loss scale and learning rate.
void CapturedExecutor::queue_inputs(const PhaseRun& run) {
  staging_->put(host_copy(run.step), shards_.update().params(0));
  staging_->queue_up(host_copy(run.step));
}

// The next step's batches, while the GPU is busy with this one. What goes wrong there is reported when that step comes.
void CapturedExecutor::stage_ahead(const PhaseRun& run) {
  const int64_t next = run.step + 1;
  if (!alone_ || !only_batches_ || !shards_.batches().is_full(*run.phase, next)) return;
  try {
    stage_inputs(run, next);
  } catch (const std::exception&) {
    staged_step_ = -1;
  }
}

}  // namespace tandem
