#include "reduce/combine.h"

#include <algorithm>
#include <stdexcept>

namespace tandem {

void Inbox::sort() {
  std::stable_sort(messages_.begin(), messages_.end(),
                   [](const ExchangeMessage& a, const ExchangeMessage& b) { return a.from < b.from; });
}

LocalCombine::LocalCombine(int shards, std::vector<ShardRange> ranges, int64_t first_sequence)
    : tree_(shards),
      ranges_(std::move(ranges)),
      range_of_(shards, -1),
      sequence_(first_sequence),
      begun_at_(first_sequence),
      inboxes_(shards) {
  for (size_t r = 0; r < ranges_.size(); ++r)
    for (int shard = ranges_[r].first; shard < ranges_[r].last; ++shard) range_of_.at(shard) = static_cast<int>(r);
  if (std::count(range_of_.begin(), range_of_.end(), -1))
    throw std::logic_error("plan leaves a shard without a worker");
}

LocalCombine::Sums& LocalCombine::sums_for(int64_t length) {
  for (auto& s : sums_)
    if (s->length == length) return *s;
  auto made = std::make_unique<Sums>();
  made->length = length;
  for (const ShardRange& range : ranges_)
    made->per_range.push_back(std::make_unique<ExactSum<float>>(tree_, length, range.first, range.last));
  if (ranges_.size() > 1) made->joined = std::make_unique<ExactSum<float>>(tree_, length);
  sums_.push_back(std::move(made));
  return *sums_.back();
}

void LocalCombine::begin(const ContributionLayout& layout) {
  layout_ = layout;
  begun_at_ = sequence_;
  now_ = &sums_for(layout.floats);
  for (auto& sum : now_->per_range) sum->begin();
  if (now_->joined) now_->joined->begin();
  counts_.assign(layout.counts, 0);
  maxima_.assign(layout.maxima, 0);
  outgoing_.clear();
}

void LocalCombine::add(int shard, Contribution contribution) {
  if (layout_.floats == 0 || !contribution.floats.empty())
    now_->per_range[range_of_.at(shard)]->add(shard, contribution.floats);
  for (int64_t i = 0; i < layout_.counts; ++i) counts_[i] += contribution.counts[i];
  for (int64_t i = 0; i < layout_.maxima; ++i) maxima_[i] = std::max(maxima_[i], contribution.maxima[i]);
  if (!contribution.messages.empty() && !layout_.exchange)
    throw std::logic_error("a phase without exchange sent a message");
  for (ExchangeMessage& message : contribution.messages) outgoing_.push_back(std::move(message));
}

void LocalCombine::add_floats(int shard, std::span<const float> floats, bool) {
  if (layout_.floats > 0) now_->per_range[range_of_.at(shard)]->add(shard, floats);
}

void LocalCombine::add_partial(int node, std::span<const float> floats, bool stays) {
  now_->per_range[range_of_.at(tree_.node(node).first)]->add_partial(node, floats, stays);
}

std::vector<int> LocalCombine::subtrees() const {
  std::vector<int> nodes;
  for (const ShardRange& range : ranges_)
    for (const int node : tree_.cover(range.first, range.last)) nodes.push_back(node);
  return nodes;
}

Total LocalCombine::finish() {
  std::span<const float> floats;
  if (now_->joined) {
    for (auto& sum : now_->per_range)
      for (const auto& partial : sum->partials()) now_->joined->add_partial(partial.node, partial.values);
    floats = now_->joined->total();
  } else {
    floats = now_->per_range[0]->total();
  }
  for (Inbox& inbox : inboxes_) inbox.clear();
  for (ExchangeMessage& message : outgoing_) {
    const int to = message.to;
    inboxes_.at(to).put(std::move(message));
  }
  outgoing_.clear();
  for (Inbox& inbox : inboxes_) inbox.sort();
  ++sequence_;
  return {floats, counts_, maxima_};
}

void LocalCombine::all_reduce(std::span<const int> shards, std::span<const std::span<double>> values) {
  ExactSum<double> sum(tree_, static_cast<int64_t>(values[0].size()));
  for (size_t i = 0; i < values.size(); ++i) sum.add(shards[i], values[i]);
  const std::span<const double> total = sum.total();
  const std::vector<double> copy(total.begin(), total.end());  // with one shard the total is its own memory
  for (const std::span<double>& v : values) std::copy(copy.begin(), copy.end(), v.begin());
  ++sequence_;
}

void LocalCombine::clear_inboxes() {
  for (Inbox& inbox : inboxes_) inbox.clear();
}

}  // namespace tandem
