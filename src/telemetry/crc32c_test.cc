#include "telemetry/crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace tandem {
namespace {

TEST(Crc32c, MatchesThePublishedVectors) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
  EXPECT_EQ(crc32c(""), 0u);
}

TEST(Crc32c, InstructionAndTableAgreeAtEveryLengthAndOffset) {
  std::string bytes;
  for (int i = 0; i < 300; ++i) bytes += static_cast<char>(i * 37 + i / 7);
  for (size_t offset = 0; offset < 9; ++offset)
    for (size_t size = 0; size + offset <= bytes.size(); ++size)
      ASSERT_EQ(crc32c({bytes.data() + offset, size}), crc32c_by_table({bytes.data() + offset, size}))
          << offset << " " << size;
}

}  // namespace
}  // namespace tandem
