#include "engine/shard_groups.h"

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/errors.h"
#include "engine/cpu_peak.h"
#include "engine/device_state.h"
#include "engine/gpu_device.h"
#include "engine/suspect_error.h"
#include "hardware/machine.h"
#include "kernels/tree_kernels.h"
#include "reduce/exact_sum.h"

namespace tandem {
namespace {

// Why the phase can't run several shards in one pass; or "". Silent: it never could, and nothing says that it should.
std::string why_one_by_one(ShardRunner& shards, const PhaseRun& run, bool& silent) {
  const Phase& phase = *run.phase;
  silent = true;
  if (!phase.grouped || run.set || shards.count() < 2) return "it is not made for it";
  if (!shards.state().has_shard_aware()) return "its layers are not made for it";
  if (!std::ranges::is_sorted(shards.order()) || shards.combine().subtrees().empty())
    return "shards are visited singly";
  if (shards.settings().shards_per_pass == 1) return "shards_per_pass = 1";
  silent = false;
  if (phase.exchange || phase.all_to_all > 0) return "it sends messages";
  if (!shards.state().plain_layer().empty())
    return fmt::format("its layer {} adds up over all rows; the layers of nn/ tell shards apart",
                       shards.state().plain_layer());
  return "";
}

bool ran_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) || dynamic_cast<const std::bad_alloc*>(&error)) return true;
  const std::string_view words = error.what();
  return words.find("allocate memory") != words.npos || words.find("ALLOC_FAILED") != words.npos;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// Hashes of all that this worker's shards have as their state, in host memory too.
std::vector<uint64_t> state_bits(ShardRunner& shards) {
  std::vector<uint64_t> bits;
  for (int shard = shards.mine().first; shard < shards.mine().last; ++shard)
    for (const NamedTensor& field : shards.state().shard_state(shard)) {
      Device& home = field.tensor.is_cuda() ? shards.device() : cpu_device();
      bits.push_back(home.state_hash(field.tensor.data_ptr(), static_cast<int64_t>(field.tensor.nbytes())));
    }
  return bits;
}

}  // namespace

// Hashes of what goes in and out of each layer, shard by shard.
class ShardGroups::Trace : public LayerTrace {
 public:
  struct Seen {
    std::string layer, what;
    std::vector<uint64_t> shards;
  };
  explicit Trace(Device& device) : device_(device) {}
  void begin_pass() { next_ = 0; }
  void saw(const ShardAware& layer, const char* what, const at::Tensor& rows) override {
    if (next_ == seen_.size()) seen_.push_back({layer.layer_name(), what, {}});
    Seen& seen = seen_[next_++];
    const int shards = layer.pass().shards;
    const at::Tensor whole = rows.detach().contiguous();
    const int64_t bytes = static_cast<int64_t>(whole.nbytes()) / shards;
    device_.wait();
    for (int s = 0; s < shards; ++s)
      seen.shards.push_back(device_.state_hash(static_cast<const char*>(whole.const_data_ptr()) + s * bytes, bytes));
  }
  const std::vector<Seen>& seen() const { return seen_; }

 private:
  Device& device_;
  std::vector<Seen> seen_;
  size_t next_ = 0;
};

ShardGroups::ShardGroups(ShardRunner& shards, const PhaseRun& run) : shards_(shards) {
  bool silent = false;
  why_not_ = why_one_by_one(shards, run, silent);
  if (!why_not_.empty() && !silent) one_by_one(run, why_not_);
}

int ShardGroups::size(const PhaseRun& run) {
  if (!possible() || shards_.runs_here(run) == 0) return 1;
  if (run.phase->batches && !shards_.batches().is_full(*run.phase, run.step))
    return 1;  // there padding is known by its shard
  if (!agreed_ || compares_again(run)) compare(run);
  return possible() ? size_ : 1;
}

void ShardGroups::compare(const PhaseRun& run) {
  if (!possible()) return;
  shards_.keep_batches(true);
  GpuDevice* const gpu = shards_.gpu();
  const Bits state = agreed_ ? Bits() : state_bits(shards_);
  Bits alone;
  if (gpu) {
    gpu->begin_peak();
    alone = run_all(run, 1);
    if (size_ == 0) size_ = by_memory(gpu->peak_bytes());
  } else {
    const CpuPeak peak;
    alone = run_all(run, 1);
    if (size_ == 0) size_ = by_memory(peak.bytes());
  }
  if (!agreed_ && state_bits(shards_) != state)
    throw ConfigError(
        "phase '" + run.phase->name + "' changes its shards' state" +
            (run.phase->changes_state ? " in host memory" : " and does not say so"),
        "it is run twice, to be compared, and only what lies on the device and is said to change is put back",
        run.phase->changes_state
            ? "let that state lie on the device, or go on shard by shard: --set shards_per_pass=1"
            : "let Recipe::phases() say changes_state of it, or go on shard by shard: --set shards_per_pass=1");
  if (size_ == 1) return one_by_one(run, "there is no memory for a second shard");
  compare_with(run, alone);
}

void ShardGroups::compare_with(const PhaseRun& run, const Bits& alone) {
  while (possible()) {
    try {
      const Bits together = run_all(run, size_);
      if (together == alone) {
        agreed_ = true;
        equal_at_ = run.step;
        return;
      }
      if (agreed_) differs_now(run);
      fall_back(run);
    } catch (const std::exception& error) {
      if (agreed_) throw;
      if (!ran_out_of_memory(error))  // one by one it went well a moment ago
        return one_by_one(run, fmt::format("several shards at once are refused: {}", first_line(error.what())));
      if (shards_.gpu()) shards_.gpu()->trim();
      size_ = (size_ + 1) / 2;
      if (size_ == 1) one_by_one(run, "there is no memory for a second shard");
    }
  }
}

ShardGroups::Bits ShardGroups::run_all(const PhaseRun& run, int size, Trace* trace) {
  Device& device = shards_.device();
  JobState& state = shards_.state();
  const int64_t floats = shards_.layout_of(*run.phase, run.last).floats;
  const SumTree tree(state.shards());
  ExactSum<float> sum(tree, floats, shards_.mine().first, shards_.mine().last, device);
  struct EndTrace {
    LayerContext& layers;
    ~EndTrace() { layers.trace = nullptr; }
  } end{state.layers()};
  const DeviceState state_of_shards(shards_);
  const std::vector<at::Tensor> saved = run.phase->changes_state ? state_of_shards.saved() : std::vector<at::Tensor>();
  const auto work = [&] {
    shards_.clear_sums(run);
    state.use_contribution(0);
    for (ShardGroup& group : shards_.groups(size)) {
      if (trace) trace->begin_pass();
      state.layers().trace = trace;
      shards_.run_group(run, group, 0);
      for (const PassPart& part : group.parts) sum.add_partial(part.node, part.vector);
    }
    shards_.sums(run).queue_fetch();
    device.wait();
  };
  if (shards_.gpu())
    shards_.gpu()->in_work_memory(work);
  else
    work();
  Bits bits;
  for (const auto& partial : sum.partials())
    bits.push_back(device.state_hash(partial.values.data(), static_cast<int64_t>(partial.values.size_bytes())));
  std::vector<int64_t> counts(static_cast<size_t>(run.phase->counts));
  for (int i = 0; i < shards_.count(); ++i) {
    const std::span<const int64_t> counted = shards_.sums(run).counts(i);
    for (size_t k = 0; k < counts.size(); ++k)
      counts[k] += shards_.scratch(i).counts[k] + (counted.empty() ? 0 : counted[k]);
  }
  for (const int64_t count : counts) bits.push_back(static_cast<uint64_t>(count));
  if (run.phase->changes_state)
    for (const uint64_t word : state_of_shards.bits()) bits.push_back(word);
  state_of_shards.restore(saved);
  return bits;
}

int ShardGroups::by_memory(size_t pass_bytes) const {
  const int64_t asked = shards_.settings().shards_per_pass, here = std::min(shards_.count(), kMaxTreeShards);
  const int64_t most = asked > 0 ? std::min<int64_t>(asked, here) : here;
  const auto workers = static_cast<uint64_t>((shards_.state().shards() + here - 1) / here);  // of this machine, at most
  const uint64_t room = shards_.gpu() ? shards_.gpu()->free_bytes() / 10 * 9
                                      : usable_memory_bytes(memory_facts()).value_or(uint64_t{1} << 32) / 4 / workers;
  const int64_t fit = std::clamp<int64_t>(static_cast<int64_t>(room / std::max<size_t>(pass_bytes, 1)), 1, most);
  const int64_t passes = (shards_.count() + fit - 1) / fit;
  return asked > 0 ? static_cast<int>(fit) : static_cast<int>((shards_.count() + passes - 1) / passes);  // equal ones
}

// Runs both ways once more, to see where the bits part.
ShardGroups::Difference ShardGroups::find_difference(const PhaseRun& run) {
  Trace first(shards_.device()), second(shards_.device());
  const Bits alone = run_all(run, 1, &first), together = run_all(run, size_, &second);
  const size_t calls = std::min(first.seen().size(), second.seen().size());
  for (size_t i = 0; i < calls; ++i) {
    const Trace::Seen &one = first.seen()[i], &many = second.seen()[i];
    if (one.layer == many.layer && one.what == many.what && one.shards == many.shards) continue;
    Difference found{.layer_name = one.layer, .what = one.what};
    const bool of_layer = one.what == "output" || one.what == "gradient of the input";
    if (of_layer && one.layer == many.layer) found.layer = shards_.state().shard_aware(one.layer);
    if (found.layer && found.layer->one_by_one()) found.layer = nullptr;
    found.words =
        found.layer ? fmt::format("the {} of {} shards at once has other bits than that of each alone", one.what, size_)
                    : fmt::format(
                          "the {} of layer '{}' depends on the rows of other shards: an operator {} it mixes "
                          "rows",
                          one.what, one.layer, one.what == "input" ? "before" : "around");
    return found;
  }
  if (alone.size() != together.size() || calls == 0 || first.seen().size() != second.seen().size())
    return {.words = "it does something else for several shards than for one"};
  return {.again = alone != together,
          .words = "its layers agree, but the gradients of their parameters, its losses or its counts do not"};
}

// Lets the layer where the bits part run its shards one by one, or else the phase.
void ShardGroups::fall_back(const PhaseRun& run) {
  const Difference found = find_difference(run);
  if (!found.layer) return one_by_one(run, found.words);
  found.layer->use_one_by_one();
  shards_.note(
      fmt::format("layer '{}' of phase '{}' runs shard by shard: {}", found.layer_name, run.phase->name, found.words));
}

void ShardGroups::differs_now(const PhaseRun& run) {
  Difference found;
  try {
    found = find_difference(run);
  } catch (const std::exception& error) {  // it says less then, and ends the run all the same
    found.words = fmt::format("where: not found ({})", first_line(error.what()));
  }
  const std::string where = !found.again
                                ? "a second comparison found no difference: a unit or a cell that errs at times"
                            : found.layer ? fmt::format("layer '{}': {}", found.layer_name, found.words)
                                          : found.words;
  throw SuspectError(
      fmt::format("phase '{}' gave other bits for {} shards in one pass than for one by one, at step {}",
                  run.phase->name, size_, run.step),
      fmt::format("{}; such passes gave the same bits at step {}, so what was trained since may be wrong", where,
                  equal_at()),
      fmt::format("look at the memory of this {}: `tandem doctor`", shards_.gpu() ? "GPU" : "machine"), equal_at(),
      "--set shards_per_pass=1");
}

void ShardGroups::one_by_one(const PhaseRun& run, const std::string& why) {
  why_not_ = why;
  shards_.keep_batches(false);
  shards_.note(fmt::format("phase '{}' runs shard by shard: {}", run.phase->name, why));
}

}  // namespace tandem
