#include "checkpoint/digest.h"

#include <gtest/gtest.h>

#include "checkpoint/checksum.h"
#include "checkpoint/sample.h"

namespace tandem {

TEST(WeightsDigest, DoesNotDependOnTheOrderOfTensors) {
  const Sample sample(5);
  std::vector<TensorView> model = sample.contents().model;
  const std::string digest = weights_digest(model);
  std::reverse(model.begin(), model.end());
  EXPECT_EQ(weights_digest(model), digest);
  EXPECT_EQ(digest.size(), 64u);
}

TEST(WeightsDigest, ChangesWithNameTypeShapeAndEveryBit) {
  std::vector<std::byte> bytes(8);
  const std::vector<TensorView> base{{"ab", DType::kF32, {2}, bytes}, {"c", DType::kF32, {2}, bytes}};
  std::set<std::string> digests{weights_digest(base)};
  auto other = base;
  other[0].name = "a", other[1].name = "bc";
  digests.insert(weights_digest(other));
  other = base;
  other[0].dtype = DType::kI32;
  digests.insert(weights_digest(other));
  other = base;
  other[0].shape = {1, 2};
  digests.insert(weights_digest(other));
  EXPECT_EQ(digests.size(), 4u);
  for (int bit = 0; bit < 64; ++bit) {
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    digests.insert(weights_digest({base.data(), 1}));
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
  }
  EXPECT_EQ(digests.size(), 68u);
}

TEST(WeightsDigest, IsTheSameForEver) {  // published digests are compared across versions
  const float values[] = {1.0f, -2.5f};
  const TensorView tensor{"fc.weight", DType::kF32, {1, 2}, std::as_bytes(std::span(values))};
  EXPECT_EQ(weights_digest({&tensor, 1}), "b109501aa39626b49b37c75a283a311276bc39bd237649bc0ac0ad6fa36df041");
}

TEST(Checksum, IsTheSameForEver) {
  EXPECT_EQ(checksum_of(ChecksumKind::kXxh64, {}), "xxh64:2d06800538d394c2");
  EXPECT_EQ(checksum_of(ChecksumKind::kXxh128, {}), "xxh128:99aa06d3014798d86001c324468d497f");
}

}  // namespace tandem
