#include "kernels/gpu/kernel_tables.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

struct Adders {
  static constexpr KernelTableId kId{"adders", 2};
  int (*one)(int);
};
struct OldAdders {
  static constexpr KernelTableId kId{"adders", 1};
  int (*one)(int);
};
struct GrownAdders {
  static constexpr KernelTableId kId{"adders", 2};
  int (*one)(int);
  int (*two)(int);
};
struct OtherKernels {
  static constexpr KernelTableId kId{"others", 2};
};

TEST(KernelTables, GiveATableByItsType) {
  const Adders adders{[](int x) { return x + 1; }};
  const KernelTables tables = KernelTables().add(adders);
  ASSERT_NE(tables.find<Adders>(), nullptr);
  EXPECT_EQ(tables.find<Adders>()->one(2), 3);
  EXPECT_EQ(tables.find<OtherKernels>(), nullptr);
}

TEST(KernelTables, RefuseATableOfAnotherVersionOrSize) {
  const Adders adders{};
  const KernelTables tables = KernelTables().add(adders);
  EXPECT_THROW(tables.find<OldAdders>(), std::logic_error);
  EXPECT_THROW(tables.find<GrownAdders>(), std::logic_error);
}

}  // namespace
}  // namespace tandem
