#include "base/cores.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

bool operator==(const LoaderSize& a, const LoaderSize& b) { return a.threads == b.threads && a.prefetch == b.prefetch; }

TEST(LoaderSize, IsWhatWasAskedFor) {
  EXPECT_TRUE(loader_size(3, 2, true, 64) == (LoaderSize{3, 2}));
  EXPECT_TRUE(loader_size(0, 5, false, 2) == (LoaderSize{0, 5}));
  EXPECT_TRUE(loader_size(-1, 1, true, 9) == (LoaderSize{8, 1}));
}
TEST(LoaderSize, IsOneThreadWhereTheCoresCompute) { EXPECT_TRUE(loader_size(-1, -1, false, 64) == (LoaderSize{1, 2})); }
TEST(LoaderSize, GivesAGpuItsShareOfTheCores) {
  EXPECT_TRUE(loader_size(-1, -1, true, 16) == (LoaderSize{8, 16}));  // eight at most
  EXPECT_TRUE(loader_size(-1, -1, true, 4) == (LoaderSize{3, 6}));
  EXPECT_TRUE(loader_size(-1, -1, true, 1) == (LoaderSize{1, 2}));
}
TEST(LoaderSize, HasTwoBatchesAheadForEachThread) {
  EXPECT_TRUE(loader_size(8, -1, false, 1) == (LoaderSize{8, 16}));
  EXPECT_TRUE(loader_size(0, -1, false, 1) == (LoaderSize{0, 2}));
}
TEST(CoreShare, IsThatOfTheGpusAndWorkersOfAMachine) {
  EXPECT_EQ((CoreShare{.usable = 64, .online = 64, .workers = 1, .gpus = 8}.cores()), 8);  // the others have runs too
  EXPECT_EQ((CoreShare{.usable = 16, .online = 16, .workers = 2, .gpus = 1}.cores()), 8);  // two on one GPU
  EXPECT_EQ((CoreShare{.usable = 16, .online = 16, .workers = 1, .gpus = 0, .ranks = 4}.cores()), 4);
  EXPECT_EQ((CoreShare{.usable = 2, .online = 2, .workers = 1, .gpus = 4}.cores()), 1);
}
TEST(CoreShare, IsNotDividedAgainWhereALauncherBoundTheRank) {
  EXPECT_EQ((CoreShare{.usable = 8, .online = 64, .workers = 1, .gpus = 8, .ranks = 8}.cores()), 8);
}
TEST(CoreShare, IsNoMoreThanAContainerMayUse) {
  EXPECT_EQ((CoreShare{.usable = 64, .online = 64, .quota = 3.5, .workers = 1, .gpus = 1}.cores()), 4);
}
TEST(Cores, AreAtLeastOne) {
  EXPECT_GE(usable_cores(), 1);
  EXPECT_GE(gpus_in_place(), 0);
}

}  // namespace
}  // namespace tandem
