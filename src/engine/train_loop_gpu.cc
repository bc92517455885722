// engine/train_loop_gpu.cc -- the part of TrainLoop that drives a GPU: phases captured once and replayed at every step.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/clock.h"
#include "base/errors.h"
#include "engine/train_loop.h"
#include "kernels/device.h"

namespace tandem {
namespace {

constexpr int kEagerSteps = 2;  // libraries choose and allocate in the first ones
constexpr size_t kMostBranches = 24;
constexpr int kTimesEqual = 2;  // at two steps, so that nothing of the first one's numbers is in the graph

std::string reason_for_eager(const Phase& phase) {
  if (const std::string asked = eager_asked_for(); !asked.empty()) return asked;
  if (!phase.capturable || phase.exchange) return "the recipe does not say that it can be captured";
  return "";
}

// A graph is compared with an eager run again at steps 16, 32, 64, ...
bool compares_at(int64_t step) { return step >= 16 && (step & (step - 1)) == 0; }

class Capturing {  // while it lives, what is queued is captured
 public:
  explicit Capturing(bool& flag) : flag_(flag) { flag_ = true; }
  ~Capturing() { flag_ = false; }

 private:
  bool& flag_;
};

struct LeaveBranch {
  ~LeaveBranch() { tandem::gpu()->branch(-1); }
};

// The bits of what a phase gave: its sums on the GPU and its integers.
std::vector<uint64_t> fingerprint(const Partials& partials, PhaseOutputs& outputs, int shards) {
  std::vector<uint64_t> bits;
  for (const auto& partial : partials)
    bits.push_back(device().state_hash(partial.values.data(), static_cast<int64_t>(partial.values.size_bytes())));
  for (int index = 0; index < shards; ++index) {
    bits.push_back(static_cast<uint64_t>(outputs.bad(index)));
    for (int64_t count : outputs.counts(index)) bits.push_back(static_cast<uint64_t>(count));
  }
  return bits;
}

}  // namespace

DeviceCombine& TrainLoop::device_combine() {
  DeviceCombine* const combine = combine_->as_device();
  if (!combine) throw std::logic_error("this combine takes no contributions from a GPU");
  return *combine;
}

GpuPhase& TrainLoop::gpu_phase(const Phase& phase) {
  const size_t index = index_of(phase);
  gpu_phases_.resize(phases_.size() + validation_->phases().size());
  if (!gpu_phases_[index]) {
    gpu_phases_[index] = std::make_unique<GpuPhase>(static_cast<int>(visit_order_.size()), phase.counts, phase.floats);
    gpu_phases_[index]->why_eager = reason_for_eager(phase);
  }
  return *gpu_phases_[index];
}

void TrainLoop::run_on_gpu(const Phase& phase) {
  GpuPhase& gpu = gpu_phase(phase);
  const bool may_replay = gpu.why_eager.empty() && is_unpadded(phase, steps_done_);
  if (may_replay && gpu.agreed >= kTimesEqual && !compares_at(steps_done_) && stage_inputs(phase, gpu, steps_done_)) {
    if (observer_) observer_->shard_begins(visit_order_.front());
    gpu.staging->queue_up(static_cast<int>(steps_done_ % 2));
    gpu.shards_graph->replay();
    wait_for_gpu();
    reset_scratch(phase, gpu);
    device_combine().set_partial_sums(gpu.partials);
    report_shards_done();
  } else {
    tandem::gpu()->begin_peak();
    queue_shards(phase);
    if (may_replay && steps_here_ >= kEagerSteps) try_capture(phase, gpu);
    gpu.outputs.queue_fetch(nullptr);
    wait_for_gpu();
    if (observer_) observer_->shard_ends(visit_order_.back());
  }
  add_host_sums(phase);
}

// The first one has begun, and all are done.
void TrainLoop::report_shards_done() {
  if (!observer_) return;
  for (size_t i = 0; i < visit_order_.size(); ++i) {
    if (i > 0) observer_->shard_begins(visit_order_[i]);
    observer_->shard_ends(visit_order_[i]);
  }
}

// Small shards leave most of a GPU idle: several run side by side, each with a vector of its own. The sums are made in
// the same order, so the bits are the same.
void TrainLoop::queue_shards(const Phase& phase, int branches) {
  device_combine().begin_floats();
  gpu_phase(phase).outputs.queue_clear();
  GpuDevice& gpu = *tandem::gpu();
  const LeaveBranch in_any_case;
  const int count = static_cast<int>(visit_order_.size());
  std::vector<std::span<const float>> floats(visit_order_.size());
  for (int first = 0; first < count; first += branches) {
    const int last = std::min(count, first + branches);
    if (branches > 1) gpu.fork(last - first);
    for (int i = first; i < last; ++i) {
      if (branches > 1) gpu.branch(i - first);
      if (phase.gradients) state_.use_contribution(i - first);
      floats[i] = run_shard(phase, visit_order_[i], i, i - first).floats;
      if (observer_ && !capturing_ && i + 1 < count) observer_->shard_ends(visit_order_[i]);
    }
    if (branches > 1) gpu.join(last - first);
    for (int i = first; i < last; ++i) device_combine().add_floats(visit_order_[i], floats[i], /*stays=*/last == count);
  }
  if (phase.gradients) state_.use_contribution(0);
}

int TrainLoop::branches_for(const Phase& phase, size_t bytes_at_work) {
  constexpr size_t kMostVectorBytes = size_t{64} << 20;  // larger ones keep a GPU busy by themselves
  const size_t vector = static_cast<size_t>(layout_of(phase).floats) * sizeof(float);
  const size_t room = tandem::gpu()->free_bytes() / 4;
  size_t branches = std::min<size_t>(visit_order_.size(), kMostVectorBytes / std::max<size_t>(vector, 1));
  branches = std::min(branches, room / std::max<size_t>(bytes_at_work + vector, 1));
  return static_cast<int>(std::clamp<size_t>(branches, 1, kMostBranches));
}

// Captures the phase and replays it on the inputs of the eager run just made. If the bits are the same, twice,
// the graph serves from then on; else the phase stays eager, and the run says why. A graph that served and
// differs now ends the run: what it gave before may have been wrong.
void TrainLoop::try_capture(const Phase& phase, GpuPhase& gpu) {
  const int shards = static_cast<int>(visit_order_.size());
  gpu.outputs.queue_fetch(nullptr);
  device().wait();
  const std::vector<uint64_t> eager = fingerprint(device_combine().partial_sums(), gpu.outputs, shards);
  std::vector<std::vector<int64_t>> counts;
  bool on_host = false;
  for (const ShardScratch& scratch : scratch_) {
    counts.push_back(scratch.counts);
    const auto not_zero = [](auto x) { return x != 0; };
    on_host = on_host || std::ranges::any_of(scratch.floats, not_zero) ||
              std::any_of(scratch.maxima.begin(), scratch.maxima.begin() + phase.maxima, not_zero);
  }
  if (on_host && gpu.agreed >= kTimesEqual) capture_went_stale(phase);
  std::string refused = on_host ? "its run() adds up context.floats or context.maxima on the host" : "";
  if (refused.empty() && !gpu.shards_graph) {
    gpu.branches = branches_for(phase, tandem::gpu()->peak_bytes());
    if (gpu.branches > 1) {  // libraries allocate the workspaces of each branch now, not during capture
      queue_shards(phase, gpu.branches);
      device().wait();
    }
    if (stage_inputs(phase, gpu, steps_done_)) {
      const Capturing here(capturing_);
      gpu.shards_graph = tandem::gpu()->capture(
          [&] {
            queue_shards(phase, gpu.branches);
            gpu.outputs.queue_fetch(nullptr);
          },
          &refused);
    }
    gpu.host_counts.clear();
    for (const ShardScratch& scratch : scratch_) gpu.host_counts.push_back(scratch.counts);
    if (gpu.shards_graph) gpu.partials = device_combine().partial_sums();
  }
  if (refused.empty() && stage_inputs(phase, gpu, steps_done_)) {
    gpu.staging->queue_up(static_cast<int>(steps_done_ % 2));
    gpu.shards_graph->replay();
    device().wait();
    if (gpu.host_counts == counts && fingerprint(gpu.partials, gpu.outputs, shards) == eager) {
      ++gpu.agreed;
      reset_scratch(phase, gpu);
      device_combine().set_partial_sums(gpu.partials);
      return;
    }
    if (gpu.agreed >= kTimesEqual) capture_went_stale(phase);
    refused = "its CUDA graph gave other bits than the eager run";
  }
  use_eager(phase, gpu, refused.empty() ? gpu.why_eager : refused);
  queue_shards(phase);
}

void TrainLoop::use_eager(const Phase& phase, GpuPhase& gpu, const std::string& why) {
  gpu.shards_graph.reset();
  gpu.step_graph.reset();
  gpu.why_eager = why;
  note_ = fmt::format("phase '{}' runs eagerly, not as one CUDA graph: {}", phase.name, why);
}

void TrainLoop::capture_went_stale(const Phase& phase) {
  throw Error(ExitCode::kFailed,
              fmt::format("the CUDA graph of phase '{}' gives other bits than its calls at step {}", phase.name,
                          steps_done_ + 1),
              "what run() does has changed since its capture: a condition on the step, a coefficient from the host",
              "let the recipe say that the phase is not capturable (SupervisedRecipe::capturable), or set "
              "TANDEM_GRAPHS=off, and begin anew: updates since the change may be wrong");
}

// As run_shard() leaves it, for shards of a replayed graph.
void TrainLoop::reset_scratch(const Phase& phase, const GpuPhase& gpu) {
  for (size_t i = 0; i < visit_order_.size(); ++i) {
    ShardScratch& scratch = scratch_[i];
    scratch.counts = gpu.host_counts[i];
    scratch.maxima.assign(static_cast<size_t>(layout_of(phase).maxima), 0);
    scratch.messages.clear();
    if (&phase == &phases_.back()) scratch.maxima.back() = requested_;
  }
}

// What the shards reported, into their scratch.
void TrainLoop::read_outputs(const Phase& phase, GpuPhase& gpu) {
  for (size_t i = 0; i < visit_order_.size(); ++i) {
    ShardScratch& scratch = scratch_[i];
    const std::span<const int64_t> counted = gpu.outputs.counts(static_cast<int>(i));
    for (size_t k = 0; k < counted.size(); ++k) scratch.counts[k] += counted[k];
    const int64_t bad = gpu.outputs.bad(static_cast<int>(i));
    if (phase.gradients && state_.shards() > 1 && bad >= 0)
      scratch.maxima[phase.maxima] = nan_flag(visit_order_[i], state_.tensor_at(bad));
  }
}

void TrainLoop::add_host_sums(const Phase& phase) {
  GpuPhase& gpu = gpu_phase(phase);
  if (phase.gradients && lockstep()) {
    gpu.outputs.queue_fetch(nullptr);
    device().wait();
  }
  read_outputs(phase, gpu);
  for (size_t i = 0; i < visit_order_.size(); ++i) {
    ShardScratch& scratch = scratch_[i];
    combine_->add(visit_order_[i], {{}, scratch.counts, scratch.maxima, std::exchange(scratch.messages, {})});
  }
  std::erase_if(loaded_, [&](const auto& item) { return item.first.step < steps_done_; });
}

// ---- all shards and the update as one graph, where this worker has all shards ----

bool TrainLoop::has_step_graph(const Phase& phase) {
  if (!phase.gradients || lockstep() || mine_.size() != state_.shards()) return false;
  GpuPhase& gpu = gpu_phase(phase);
  if (!gpu.why_eager.empty() || gpu.agreed < kTimesEqual || !is_unpadded(phase, steps_done_)) return false;
  if (!stage_inputs(phase, gpu, steps_done_)) return false;
  if (gpu.step_graph) return true;
  std::string refused;
  {
    const Capturing here(capturing_);
    gpu.step_graph = tandem::gpu()->capture(
        [&] {
          queue_shards(phase, gpu.branches);
          gpu.partials = device_combine().partial_sums();
          const std::span<const float> total = gpu.partials.at(0).values;
          const bool flags = state_.shards() > 1;
          update_.queue(total, gpu.staging->params(), gpu.outputs.decision_on_gpu(),
                        flags ? gpu.outputs.bad_on_gpu() : std::span<int64_t>());
          gpu.outputs.queue_fetch(total.data() + total.size() - static_cast<size_t>(phase.floats));
        },
        &refused);
  }
  device_combine().begin_floats();
  if (!gpu.step_graph) use_eager(phase, gpu, refused);
  gpu.shards_graph.reset();
  return gpu.step_graph != nullptr;
}

Total TrainLoop::launch_step_graph(const Phase& phase) {
  GpuPhase& gpu = gpu_phase(phase);
  const int shards = static_cast<int>(visit_order_.size());
  const bool compare = !gpu.step_agreed || compares_at(steps_done_);
  std::vector<uint64_t> eager;
  if (compare) {
    queue_shards(phase);
    gpu.outputs.queue_fetch(nullptr);
    device().wait();
    eager = fingerprint(device_combine().partial_sums(), gpu.outputs, shards);
    for (int i = 0; i < shards; ++i)
      if (scratch_[i].counts != gpu.host_counts[i]) capture_went_stale(phase);
    if (observer_) observer_->shard_ends(visit_order_.back());
  }
  reset_scratch(phase, gpu);
  for (int i = 0; i < shards; ++i) combine_->add(visit_order_[i], {{}, scratch_[i].counts, scratch_[i].maxima, {}});
  device_combine().set_partial_sums(gpu.partials);
  Total total = combine_->finish();  // nobody can join in this phase any more: now it may change the weights
  if (observer_) observer_->shard_begins(visit_order_.front());
  const int copy = static_cast<int>(steps_done_ % 2);
  gpu.staging->put(copy, update_.params(0));
  gpu.staging->queue_up(copy);
  gpu.step_graph->replay();
  const double loaded = load_seconds_;
  stage_ahead(phase, gpu);
  // A GPU that is still at work was not kept waiting by the next step's batches.
  const double staging = load_seconds_ - loaded;
  if (wait_for_gpu() > 0.05 * staging) {
    load_seconds_ = loaded;
    gpu_seconds_ += staging;
  }
  if (compare && fingerprint(gpu.partials, gpu.outputs, shards) != eager) capture_went_stale(phase);
  gpu.step_agreed = true;
  read_outputs(phase, gpu);
  graph_counts_.assign(static_cast<size_t>(phase.counts), 0);
  graph_maxima_.assign(scratch_[0].maxima.begin(), scratch_[0].maxima.end());
  for (const ShardScratch& scratch : scratch_) {
    for (size_t k = 0; k < graph_counts_.size(); ++k) graph_counts_[k] += scratch.counts[k];
    for (size_t k = 0; k < graph_maxima_.size(); ++k) graph_maxima_[k] = std::max(graph_maxima_[k], scratch.maxima[k]);
  }
  total.counts = graph_counts_;
  total.maxima = graph_maxima_;
  report_shards_done();
  if (observer_) {
    observer_->combine_begins();
    observer_->combine_ends();
  }
  std::erase_if(loaded_, [&](const auto& item) { return item.first.step <= steps_done_; });
  updated_by_ = &gpu;
  return total;
}

// The update alone, where the total comes from several workers. Leaves updated_by_ null where it is not captured.
void TrainLoop::launch_update_graph(const Phase& phase, const Total& total, int64_t flag) {
  GpuPhase& gpu = gpu_phase(phase);
  if (!gpu.why_eager.empty() || gpu.agreed < kTimesEqual || gpu.update_refused) return;
  if (!gpu.update_graph || gpu.total != total.floats.data()) {
    std::string refused;
    gpu.total = total.floats.data();
    gpu.update_graph = tandem::gpu()->capture(
        [&] {
          update_.queue(total.floats, gpu.staging->params(), gpu.outputs.decision_on_gpu(), {});
          gpu.outputs.queue_fetch(total.floats.data() + total.floats.size() - static_cast<size_t>(phase.floats));
        },
        &refused);
    gpu.update_refused = !gpu.update_graph;
    if (gpu.update_refused) {
      note_ = fmt::format("the update of phase '{}' runs eagerly: {}", phase.name, refused);
      return;
    }
  }
  const int copy = static_cast<int>(steps_done_ % 2);
  gpu.staging->put(copy, update_.params(flag));
  gpu.staging->queue_up_params(copy);
  gpu.update_graph->replay();
  device().wait();
  updated_by_ = &gpu;
}

// ---- inputs ----

bool TrainLoop::is_unpadded(const Phase& phase, int64_t step) const {
  return !phase.batches || sampler_->is_full(step);
}

double TrainLoop::wait_for_gpu() {
  const double begin = monotonic_seconds();
  device().wait();
  const double seconds = monotonic_seconds() - begin;
  gpu_seconds_ += seconds;
  return seconds;
}

const Batch& TrainLoop::loaded_batch(const LoadKey& key) {
  auto found = loaded_.find(key);
  if (found == loaded_.end()) found = loaded_.emplace(key, load(key)).first;
  return found->second;
}

std::vector<at::Tensor> TrainLoop::host_inputs(const Phase& phase, ShardContext& context, const Batch* batch) {
  std::vector<at::Tensor> all;
  if (batch) {
    all = batch->tensors;
    all.push_back(batch->weight);
  }
  for (at::Tensor& tensor : recipe_->inputs(phase, context)) all.push_back(std::move(tensor));
  return all;
}

// False, with the reason in gpu.why_eager, where they can't be staged.
bool TrainLoop::stage_inputs(const Phase& phase, GpuPhase& gpu, int64_t step) {
  if (gpu.staged_step == step) return true;
  const size_t micro_batches = static_cast<size_t>(phase.gradients ? settings_.accumulation : 1);
  const int copy = static_cast<int>(step % 2);
  for (size_t index = 0; index < visit_order_.size(); ++index) {
    ShardContext context = context_of(visit_order_[index]);
    context.step = step;
    for (size_t micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
      context.micro_batch = static_cast<int64_t>(micro_batch);
      const Batch* batch = nullptr;
      if (phase.batches) batch = context.batch_ = &loaded_batch({step, visit_order_[index], context.micro_batch});
      const std::vector<at::Tensor> tensors = host_inputs(phase, context, batch);
      if (!gpu.staging) {
        gpu.staging = std::make_unique<InputStaging>(static_cast<int>(visit_order_.size() * micro_batches), tensors);
        gpu.only_batches = batch && tensors.size() == batch->tensors.size() + 1;
      }
      if (!gpu.staging->fits(tensors)) {
        use_eager(phase, gpu, "its inputs change their sizes between steps or shards, or lie on the GPU already");
        return false;
      }
      gpu.staging->put(copy, static_cast<int>(index * micro_batches + micro_batch), context.random(0), tensors);
    }
  }
  gpu.staging->put(copy, update_.params(0));
  gpu.staged_step = step;
  return true;
}

// The next step's batches, while the GPU is busy with this one. What goes wrong there is reported when that step
// comes.
void TrainLoop::stage_ahead(const Phase& phase, GpuPhase& gpu) {
  const int64_t next = steps_done_ + 1;
  if (phases_.size() > 1 || !gpu.only_batches || !is_unpadded(phase, next)) return;
  try {
    stage_inputs(phase, gpu, next);
  } catch (const std::exception&) {
    gpu.staged_step = -1;
  }
}

}  // namespace tandem
