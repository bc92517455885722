#include "reduce/sum_tree.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tandem {
namespace {

TEST(SumTree, TwentyFourShardsAreTwoThreeTwoTwo) { EXPECT_EQ(SumTree::arities(24), (std::vector<int>{2, 3, 2, 2})); }

TEST(SumTree, TwentyFourShardsNeedAtMostTwoPartialsOnTheUsualWorkerCounts) {
  const SumTree tree(24);
  for (int workers : {1, 2, 3, 4, 6, 8})
    for (int w = 0; w < workers; ++w)
      EXPECT_LE(tree.cover(w * 24 / workers, (w + 1) * 24 / workers).size(), 2u) << workers << " workers";
}

TEST(SumTree, EveryCountHasEveryShardOnceInOrder) {
  for (int shards = 1; shards <= 130; ++shards) {
    const SumTree tree(shards);
    ASSERT_EQ(tree.shards(), shards);
    for (int s = 0; s < shards; ++s) {
      const auto& leaf = tree.node(tree.leaf(s));
      ASSERT_EQ(leaf.first, s);
      ASSERT_EQ(leaf.last, s + 1);
    }
    for (int id = 0; id < tree.node_count(); ++id) {
      const auto& n = tree.node(id);
      int at = n.first;
      for (int child : n.children) {
        ASSERT_EQ(tree.node(child).first, at);
        at = tree.node(child).last;
      }
      if (!n.children.empty()) {
        ASSERT_EQ(at, n.last);
      }
    }
  }
}

TEST(SumTree, ACoverIsExactlyItsRange) {
  for (int shards : {1, 2, 7, 13, 24, 30, 64}) {
    const SumTree tree(shards);
    for (int first = 0; first < shards; ++first)
      for (int last = first + 1; last <= shards; ++last) {
        int at = first;
        for (int id : tree.cover(first, last)) {
          ASSERT_EQ(tree.node(id).first, at);
          at = tree.node(id).last;
        }
        ASSERT_EQ(at, last);
      }
  }
}

}  // namespace
}  // namespace tandem
