#include "reduce/join.h"

#include <algorithm>
#include <stdexcept>

#include "kernels/cpu/sums.h"
#include "reduce/stream_copy.h"

namespace tandem {
namespace {

constexpr int64_t kJoinBlock = 2048;  // a few operands and buffers of this length fit the first-level cache
constexpr int kMostOperands = 64;

void add_block(float* out, const float* const* inputs, int count, int64_t n) { add_in_order(out, inputs, count, n); }

void add_block(double* out, const double* const* inputs, int count, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    double sum = inputs[0][i];
    for (int k = 1; k < count; ++k) sum += inputs[k][i];
    out[i] = sum;
  }
}

void copy_out(float* out, const float* values, int64_t n) { stream_copy(out, values, n); }
void copy_out(double* out, const double* values, int64_t n) { std::copy_n(values, n, out); }

}  // namespace

template <class T>
Join<T>::Join(const SumTree& tree, std::span<const ShardRange> ranges) {
  std::vector<int> partial_at(tree.node_count(), -1);
  int shard = 0, count = 0;
  for (const ShardRange& range : ranges) {
    if (range.first != shard || range.last < range.first)
      throw std::logic_error("the members' ranges do not follow each other");
    shard = range.last;
    first_.push_back(count);
    for (int node : tree.cover(range.first, range.last)) partial_at[node] = count++;
  }
  first_.push_back(count);
  if (shard != tree.shards()) throw std::logic_error("the members' ranges do not cover all shards");
  Sum last{0, {}};
  operands_of(tree, tree.root(), partial_at, last.operands);
  merges_of(tree, tree.root(), partial_at);
  last.buffer = buffers_++;
  sums_.push_back(std::move(last));
  scratch_.resize(buffers_ * kJoinBlock);
}

template <class T>
void Join<T>::operands_of(const SumTree& tree, int node, const std::vector<int>& partial_at,
                          std::vector<int>& operands) {
  if (partial_at[node] >= 0) {
    operands.push_back(partial_at[node]);
    return;
  }
  const std::vector<int>& children = tree.node(node).children;
  operands_of(tree, children[0], partial_at, operands);
  for (size_t c = 1; c < children.size(); ++c) {
    if (partial_at[children[c]] >= 0) {
      operands.push_back(partial_at[children[c]]);
      continue;
    }
    Sum sum{0, {}};
    operands_of(tree, children[c], partial_at, sum.operands);
    sum.buffer = buffers_++;
    operands.push_back(-1 - sum.buffer);
    sums_.push_back(std::move(sum));
  }
}

template <class T>
void Join<T>::merges_of(const SumTree& tree, int node, const std::vector<int>& partial_at) {
  if (partial_at[node] >= 0) {
    merges_.push_back(0);
    return;
  }
  const std::vector<int>& children = tree.node(node).children;
  for (size_t c = 0; c < children.size(); ++c) {
    merges_of(tree, children[c], partial_at);
    if (c > 0) ++merges_.back();
  }
}

template <class T>
void Join<T>::add(T* out, const T* const* partials, int64_t n) {
  const T* inputs[kMostOperands];
  const bool large = n >= kStreamFloats;
  for (int64_t begin = 0; begin < n; begin += kJoinBlock) {
    const int64_t length = std::min(kJoinBlock, n - begin);
    for (size_t s = 0; s < sums_.size(); ++s) {
      const Sum& sum = sums_[s];
      T* const to = s + 1 == sums_.size() && !large ? out + begin : scratch_.data() + sum.buffer * kJoinBlock;
      // A list longer than the array is added in several calls: the sum so far is then the first operand.
      int count = 0;
      for (int operand : sum.operands) {
        if (count == kMostOperands) {
          add_block(to, inputs, count, length);
          inputs[0] = to;
          count = 1;
        }
        inputs[count++] = operand >= 0 ? partials[operand] + begin : scratch_.data() + (-1 - operand) * kJoinBlock;
      }
      add_block(to, inputs, count, length);
    }
    if (large) copy_out(out + begin, scratch_.data() + sums_.back().buffer * kJoinBlock, length);
  }
}

template class Join<float>;
template class Join<double>;

std::pair<int64_t, int64_t> slice_of(int64_t n, int members, int member) {
  constexpr int64_t kLine = 16;  // floats
  const int64_t lines = (n + kLine - 1) / kLine;
  auto edge = [&](int m) { return std::min(n, lines * m / members * kLine); };
  return {edge(member), edge(member + 1)};
}

}  // namespace tandem
