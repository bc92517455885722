#include "reduce/gpu_combine.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "reduce/exact_sum.h"

namespace tandem {

struct GpuCombine::Vectors {
  Vectors(const SumTree& tree, int64_t n, ShardRange mine, Device& d)
      : length(n), sum(tree, n, mine.first, mine.last, d), device(d) {}
  Vectors(const Vectors&) = delete;
  ~Vectors() {
    for (std::vector<float>& partial : partials) device.unpin(partial.data());
    if (own_total) device.release(own_total);
  }
  // Where the total goes: not to a partial, which others may still read. Once all shards are added up, the memory of
  // earlier partials is free, if there were any.
  float* total(std::span<const Partials::value_type> partials) {
    if (own_total) return own_total;
    if (float* const spare = sum.spare(partials)) return spare;
    return keep_total();
  }
  float* keep_total() {
    if (!own_total) own_total = static_cast<float*>(device.allocate(static_cast<size_t>(length) * sizeof(float)));
    return own_total;
  }

  int64_t length;
  ExactSum<float> sum;
  Device& device;
  std::vector<std::vector<float>> partials;  // pinned host memory, on their way to the others
  float* own_total = nullptr;                // on the GPU, where `sum` has no memory to spare
  Partials made;                             // by the replay of a graph, in place of `sum`
};

GpuCombine::GpuCombine(int shards, ShardRange mine, std::unique_ptr<Combine> inner, Device& device,
                       std::unique_ptr<DirectGpuLink> link)
    : tree_(shards),
      mine_(mine),
      inner_(std::move(inner)),
      device_(device),
      alone_(mine.size() == shards),
      link_(std::move(link)) {}

GpuCombine::~GpuCombine() = default;

GpuCombine::Vectors& GpuCombine::vectors_for(int64_t length) {
  for (auto& v : all_)
    if (v->length == length) return *v;
  all_.push_back(std::make_unique<Vectors>(tree_, length, mine_, device_));
  Vectors& v = *all_.back();
  if (alone_ || length == 0) return v;
  v.partials.resize(tree_.cover(mine_.first, mine_.last).size());
  for (std::vector<float>& partial : v.partials) {
    partial.resize(static_cast<size_t>(length));
    device_.pin(partial.data(), partial.size() * sizeof(float));
  }
  return v;
}

void GpuCombine::begin(const ContributionLayout& layout) {
  ContributionLayout on_host = layout;
  const bool carries = link_ && link_->carries();
  completes_ = carries && link_->completes() && !layout.exchange;
  linked_ = completes_ || (carries && !link_->completes() && layout.floats > 0);
  if (alone_ || linked_) on_host.floats = 0;
  added_ = 0;
  counts_.assign(completes_ ? static_cast<size_t>(layout.counts) : 0, 0);
  maxima_.assign(completes_ ? static_cast<size_t>(layout.maxima) : 0, 0);
  inner_->begin(on_host);
  now_ = &vectors_for(layout.floats);
  if (completes_ && layout.floats > 0) now_->keep_total();  // where a graph writes it; none is allocated in a capture
  begin_floats();
}

void GpuCombine::add(int shard, Contribution contribution) {
  if (!contribution.floats.empty()) add_floats(shard, std::exchange(contribution.floats, {}), contribution.stays);
  if (!completes_) return inner_->add(shard, std::move(contribution));
  for (size_t i = 0; i < counts_.size(); ++i) counts_[i] += contribution.counts[i];
  for (size_t i = 0; i < maxima_.size(); ++i) maxima_[i] = std::max(maxima_[i], contribution.maxima[i]);
  if (!contribution.messages.empty()) throw std::logic_error("a phase without exchange sent a message");
  ++added_;
}

void GpuCombine::begin_floats() {
  now_->made.clear();
  now_->sum.begin();
}

void GpuCombine::add_floats(int shard, std::span<const float> floats, bool stays) {
  if (now_->length > 0) now_->sum.add(shard, floats, stays);
}

Partials GpuCombine::partial_sums() const {  // throws if a shard is missing
  if (now_->length == 0) return {};
  return now_->made.empty() ? now_->sum.partials() : now_->made;
}

void GpuCombine::set_partial_sums(Partials sums) { now_->made = std::move(sums); }

void GpuCombine::add_partial(int node, std::span<const float> floats, bool stays) {
  now_->sum.add_partial(node, floats, stays);
}

void GpuCombine::begin_total() {
  if (added_ != mine_.size()) throw std::logic_error("a shard is missing");
  link_->begin_queued(inner_->next_sequence(), {counts_, maxima_});
}

std::span<const float> GpuCombine::queue_total(const DeviceIntegers& integers) {
  const Partials partials = partial_sums();
  std::vector<const float*> mine;
  for (const auto& partial : partials) mine.push_back(partial.values.data());
  float* const there = now_->length > 0 ? now_->total(partials) : nullptr;
  link_->queue({.total = there, .mine = mine, .floats = now_->length, .integers = integers});
  return {there, static_cast<size_t>(now_->length)};
}

bool GpuCombine::end_total() {
  if (link_->end_queued(inner_->next_sequence(), 1) == 0) return false;
  inner_->completed();
  return true;
}

void GpuCombine::begin_totals(int sums, std::span<int64_t> maxima) {
  inner_->begin({});  // asks whether the members are still these
  link_->begin_queued(inner_->next_sequence(), {{}, maxima});
  sums_ = sums;
}

int GpuCombine::end_totals() {
  const int ended = link_->end_queued(inner_->next_sequence(), sums_);
  for (int i = 0; ended == sums_ && i < sums_; ++i) inner_->completed();
  return ended;
}

Total GpuCombine::finish() {
  const Partials partials = partial_sums();
  if (alone_) {
    Total total = inner_->finish();
    if (!partials.empty()) total.floats = partials[0].values;
    return total;
  }
  if (linked_) {  // before the host's part: whoever is done there has nothing under way here
    if (completes_ && added_ != mine_.size()) throw std::logic_error("a shard is missing");
    std::vector<const float*> mine;
    for (const auto& partial : partials) mine.push_back(partial.values.data());
    float* const there = now_->length > 0 ? now_->total(partials) : nullptr;
    link_->sum(there, mine, now_->length, inner_->next_sequence(), {counts_, maxima_});
    if (completes_) {
      inner_->completed();
      return {{there, static_cast<size_t>(now_->length)}, counts_, maxima_};
    }
    Total total = inner_->finish();
    total.floats = {there, static_cast<size_t>(now_->length)};
    return total;
  }
  for (size_t k = 0; k < now_->partials.size(); ++k) {
    device_.to_host(now_->partials[k].data(), partials[k].values.data(), partials[k].values.size_bytes());
    inner_->add_partial(partials[k].node, now_->partials[k], false);
  }
  Total total = inner_->finish();
  if (total.floats.empty()) return total;
  float* const there = now_->total(partials);
  device_.from_host(there, total.floats.data(), total.floats.size_bytes());
  total.floats = {there, total.floats.size()};
  return total;
}

}  // namespace tandem
