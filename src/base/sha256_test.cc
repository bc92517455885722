#include "base/sha256.h"

#include <gtest/gtest.h>

namespace tandem {

TEST(Sha256, MatchesTheStandardsExamples) {  // FIPS 180-4
  EXPECT_EQ(Sha256().hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  Sha256 abc;
  abc.update("abc");
  EXPECT_EQ(abc.hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256, PiecesGiveTheSumOfTheWhole) {
  Sha256 pieces, whole;
  for (int i = 0; i < 1000; ++i) pieces.update("seven b");
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "seven b";
  whole.update(text);
  EXPECT_EQ(pieces.hex(), whole.hex());
}

}  // namespace tandem
