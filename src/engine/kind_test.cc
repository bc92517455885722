// The kind of a GPU, with and without its model.
#include "engine/kind.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tandem {
namespace {

nlohmann::json parts_of(const char* model, int multiprocessors, const char* capability = "9.0") {
  return {
      {"device", "cuda"},       {"card", model},    {"capability", capability}, {"multiprocessors", multiprocessors},
      {"cuda", 13000},          {"cudnn", 91900},   {"torch", "2.11.0"},        {"kernels", 7},
      {"arithmetic", "0a1b2c"}, {"tandem", "0.1.0"}};
}

TEST(Kind, GpusOfOneCapabilityAreOfOneKindWhereAllArithmeticIsOurs) {
  const nlohmann::json whole = parts_of("H200", 132), part = parts_of("H200", 14), other = parts_of("H100 PCIe", 114),
                       older = parts_of("A100", 108, "8.0");
  EXPECT_EQ(kind_of(without_model(whole)), kind_of(without_model(part)));
  EXPECT_EQ(kind_of(without_model(whole)), kind_of(without_model(other)));
  EXPECT_NE(kind_of(without_model(whole)), kind_of(without_model(older)));
  EXPECT_EQ(kind_of(without_model(whole)).rfind("cuda-9.0-", 0), 0u);
  EXPECT_EQ(kind_of(without_model(whole)).find("sm"), std::string::npos);
}

TEST(Kind, GpusOfOneCapabilityDifferWhereLibrariesChooseByTheModel) {
  EXPECT_NE(kind_of(parts_of("H200", 132)), kind_of(parts_of("H200", 66)));
  EXPECT_NE(kind_of(parts_of("H200", 132)), kind_of(parts_of("H100", 132)));
  EXPECT_EQ(kind_of(parts_of("H200", 132)).rfind("cuda-9.0-132sm-", 0), 0u);
}

TEST(Kind, AKernelOfOursThatGivesOtherBitsIsAnotherKind) {
  nlohmann::json newer = parts_of("H200", 132);
  newer["kernels"] = 8;
  EXPECT_NE(kind_of(without_model(parts_of("H200", 132))), kind_of(without_model(newer)));
}

}  // namespace
}  // namespace tandem
