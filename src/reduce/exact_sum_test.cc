#include "reduce/exact_sum.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>

#include "kernels/cpu/sums.h"
#include "reduce/shard_range.h"

namespace tandem {
namespace {

using Vectors = std::vector<std::vector<float>>;

Vectors awkward_vectors(int shards, int length, std::mt19937& random) {
  // Magnitudes from 1e-8 to 1e8 of both signs: nearly every order of adding rounds differently.
  std::uniform_real_distribution<float> exponent(-8, 8), sign(-1, 1);
  Vectors v(shards, std::vector<float>(length));
  for (auto& row : v)
    for (float& x : row) x = std::pow(10.f, exponent(random)) * sign(random);
  return v;
}

// The definition, written the plain way.
std::vector<float> reference(const SumTree& tree, int node, const Vectors& v) {
  const auto& n = tree.node(node);
  if (n.children.empty()) return v[n.first];
  std::vector<float> sum = reference(tree, n.children[0], v);
  for (size_t c = 1; c < n.children.size(); ++c) {
    const auto next = reference(tree, n.children[c], v);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += next[i];
  }
  return sum;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

TEST(ExactSum, AnyOrderAndAnyGroupingGiveTheBitsOfTheTree) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 400; ++trial) {
    const int shards = trial < 200 ? 24 : 1 + static_cast<int>(random() % 40);
    const SumTree tree(shards);
    const Vectors v = awkward_vectors(shards, 33, random);
    const auto want = reference(tree, tree.root(), v);

    // random contiguous ranges, each visited in a random order, joined in a random order
    std::vector<int> cuts{0, shards};
    for (int c = static_cast<int>(random() % 6); c-- > 0;) cuts.push_back(random() % (shards + 1));
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    std::vector<std::unique_ptr<ExactSum<float>>> workers;
    std::vector<ExactSum<float>::Partial> partials;
    for (size_t c = 0; c + 1 < cuts.size(); ++c) {
      workers.push_back(std::make_unique<ExactSum<float>>(tree, 33, cuts[c], cuts[c + 1]));
      std::vector<int> order(cuts[c + 1] - cuts[c]);
      std::iota(order.begin(), order.end(), cuts[c]);
      std::shuffle(order.begin(), order.end(), random);
      for (int shard : order) workers.back()->add(shard, v[shard], /*stays=*/random() % 3 == 0 || trial % 4 == 0);
      for (const auto& p : workers.back()->partials()) partials.push_back(p);
    }
    std::shuffle(partials.begin(), partials.end(), random);
    ExactSum<float> joined(tree, 33);
    for (const auto& p : partials) joined.add_partial(p.node, p.values);
    ASSERT_TRUE(same_bits(joined.total(), want)) << "trial " << trial << ", " << shards << " shards";
  }
}

TEST(ExactSum, SubtreesThatAreAddedUpElsewhereGiveTheSameBits) {
  std::mt19937 random(8);
  for (int shards = 1; shards <= 40; ++shards) {
    const SumTree tree(shards);
    const Vectors v = awkward_vectors(shards, 300, random);
    const int cut = static_cast<int>(random() % (shards + 1));
    ExactSum<float> joined(tree, 300);
    Vectors sums;
    for (const ShardRange range : {ShardRange{0, cut}, ShardRange{cut, shards}})
      for (const int node : tree.cover(range.first, range.last)) {
        std::vector<const float*> parts;
        for (int s = tree.node(node).first; s < tree.node(node).last; ++s) parts.push_back(v[s].data());
        sums.emplace_back(300);
        for (const CpuVariant variant : runnable_cpu_variants()) {
          add_along_tree(sums.back().data(), parts, tree.merges(node), 300, variant);
          ASSERT_TRUE(same_bits(sums.back(), reference(tree, node, v))) << shards << " shards, node " << node;
        }
        joined.add_partial(node, sums.back(), /*stays=*/true);
      }
    ASSERT_TRUE(same_bits(joined.total(), reference(tree, tree.root(), v))) << shards << " shards";
  }
}

TEST(ExactSum, APlainLoopWouldGiveOtherBits) {  // so the test above can tell a wrong order
  std::mt19937 random(6);
  const SumTree tree(24);
  const Vectors v = awkward_vectors(24, 33, random);
  std::vector<float> loop = v[0];
  for (int s = 1; s < 24; ++s)
    for (int i = 0; i < 33; ++i) loop[i] += v[s][i];
  EXPECT_FALSE(same_bits(loop, reference(tree, tree.root(), v)));
}

TEST(ExactSum, ReusedBuffersCarryNothingOver) {
  std::mt19937 random(7);
  const SumTree tree(24);
  ExactSum<float> sum(tree, 33);
  for (int trial = 0; trial < 5; ++trial) {
    const Vectors v = awkward_vectors(24, 33, random);
    sum.begin();
    for (int s = 0; s < 24; ++s) sum.add((s * 7) % 24, v[(s * 7) % 24]);
    ASSERT_TRUE(same_bits(sum.total(), reference(tree, tree.root(), v)));
  }
}

TEST(ExactSum, PartialsAreAddedUpInTheCallersBuffers) {
  std::mt19937 random(8);
  const SumTree tree(24);
  const Vectors v = awkward_vectors(24, 33, random);
  for (const auto& [first, last] : std::vector<std::pair<int, int>>{{0, 24}, {1, 24}, {5, 17}, {3, 4}, {12, 24}}) {
    Vectors buffers(tree.cover(first, last).size(), std::vector<float>(33));
    std::vector<float*> at;
    for (auto& buffer : buffers) at.push_back(buffer.data());
    ExactSum<float> in_buffers(tree, 33, first, last, at), plain(tree, 33, first, last);
    for (int trial = 0; trial < 20; ++trial) {
      std::vector<int> order(last - first);
      std::iota(order.begin(), order.end(), first);
      std::shuffle(order.begin(), order.end(), random);
      in_buffers.begin();
      plain.begin();
      for (int shard : order) in_buffers.add(shard, v[shard]), plain.add(shard, v[shard]);
      const auto got = in_buffers.partials(), want = plain.partials();
      for (size_t k = 0; k < want.size(); ++k) {
        ASSERT_EQ(got[k].values.data(), at[k]);
        ASSERT_TRUE(same_bits(got[k].values, want[k].values));
      }
    }
  }
  std::vector<float*> none;
  EXPECT_THROW(ExactSum<float>(tree, 33, 0, 24, none), std::logic_error);
}

TEST(ExactSum, AVectorThatStaysIsNotCopiedWhereItIsAPartialByItself) {
  const SumTree tree(4);
  const std::vector<float> a{1}, b{2};
  ExactSum<float> sum(tree, 1, 1, 4);  // shard 1, and the subtree of 2 and 3
  sum.add(2, b, true);
  sum.add(1, a, true);
  sum.add(3, a, true);
  EXPECT_EQ(sum.partials()[0].values.data(), a.data());
  EXPECT_EQ(sum.partials()[1].values[0], 3);
  EXPECT_EQ(b[0], 2) << "what is lent is never added to";
  sum.begin();
  for (int shard : {1, 2, 3}) sum.add(shard, b);
  EXPECT_NE(sum.partials()[0].values.data(), b.data());
}

TEST(ExactSum, AShardGivenTwiceOrForgottenIsAnError) {
  const SumTree tree(6);
  ExactSum<float> sum(tree, 1);
  const std::vector<float> one{1};
  for (int s : {0, 1, 2, 3, 4}) sum.add(s, one);
  EXPECT_THROW((void)sum.total(), std::logic_error);
  EXPECT_THROW(sum.add(1, one), std::logic_error);
  sum.add(5, one);
  EXPECT_EQ(sum.total()[0], 6.f);
  EXPECT_THROW(sum.add(5, one), std::logic_error);
}

}  // namespace
}  // namespace tandem
