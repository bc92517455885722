// The kind of a GPU, with and without the card in it.
#include "engine/kind.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tandem {
namespace {

nlohmann::json parts_of(const char* card, int multiprocessors, const char* capability = "9.0") {
  return {
      {"device", "cuda"},       {"card", card},     {"capability", capability}, {"multiprocessors", multiprocessors},
      {"cuda", 13000},          {"cudnn", 91900},   {"torch", "2.11.0"},        {"kernels", 7},
      {"arithmetic", "0a1b2c"}, {"tandem", "0.1.0"}};
}

TEST(Kind, CardsOfOneCapabilityAreOfOneKindWhereAllArithmeticIsOurs) {
  const nlohmann::json whole = parts_of("H200", 132), part = parts_of("H200", 14), other = parts_of("H100 PCIe", 114),
                       older = parts_of("A100", 108, "8.0");
  EXPECT_EQ(kind_of(without_card(whole)), kind_of(without_card(part)));
  EXPECT_EQ(kind_of(without_card(whole)), kind_of(without_card(other)));
  EXPECT_NE(kind_of(without_card(whole)), kind_of(without_card(older)));
  EXPECT_EQ(kind_of(without_card(whole)).rfind("cuda-9.0-", 0), 0u);
  EXPECT_EQ(kind_of(without_card(whole)).find("sm"), std::string::npos);
}

TEST(Kind, CardsOfOneCapabilityDifferWhereLibrariesChooseByTheCard) {
  EXPECT_NE(kind_of(parts_of("H200", 132)), kind_of(parts_of("H200", 66)));
  EXPECT_NE(kind_of(parts_of("H200", 132)), kind_of(parts_of("H100", 132)));
  EXPECT_EQ(kind_of(parts_of("H200", 132)).rfind("cuda-9.0-132sm-", 0), 0u);
}

TEST(Kind, AKernelOfOursThatGivesOtherBitsIsAnotherKind) {
  nlohmann::json newer = parts_of("H200", 132);
  newer["kernels"] = 8;
  EXPECT_NE(kind_of(without_card(parts_of("H200", 132))), kind_of(without_card(newer)));
}

}  // namespace
}  // namespace tandem
