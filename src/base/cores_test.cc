#include "base/cores.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

bool operator==(const LoaderSize& a, const LoaderSize& b) { return a.threads == b.threads && a.prefetch == b.prefetch; }

TEST(LoaderSize, IsWhatWasAskedFor) {
  EXPECT_TRUE(loader_size(3, 2, true, 64, 1) == (LoaderSize{3, 2}));
  EXPECT_TRUE(loader_size(0, 5, false, 2, 0) == (LoaderSize{0, 5}));
}
TEST(LoaderSize, IsOneThreadWhereTheCoresCompute) {
  EXPECT_TRUE(loader_size(-1, 2, false, 64, 8) == (LoaderSize{1, 2}));
}
TEST(LoaderSize, GivesACardItsShareOfTheCores) {
  EXPECT_TRUE(loader_size(-1, 2, true, 16, 1) == (LoaderSize{8, 16}));  // eight at most
  EXPECT_TRUE(loader_size(-1, 2, true, 32, 8) == (LoaderSize{3, 6}));
  EXPECT_TRUE(loader_size(-1, 40, true, 32, 8) == (LoaderSize{3, 40}));
  EXPECT_TRUE(loader_size(-1, 2, true, 2, 4) == (LoaderSize{1, 2}));
  EXPECT_TRUE(loader_size(-1, 2, true, 4, 0) == (LoaderSize{3, 6}));  // no device file is to be seen
}
TEST(Cores, AreAtLeastOne) {
  EXPECT_GE(usable_cores(), 1);
  EXPECT_GE(cards_in_place(), 0);
}

}  // namespace
}  // namespace tandem
