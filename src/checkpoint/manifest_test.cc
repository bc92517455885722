#include "checkpoint/manifest.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tandem {
namespace {

Manifest example() {
  Manifest manifest;
  manifest.step = 9'000'000'000;
  manifest.run_id = "tiny-20260131-090507-ab12";
  manifest.recipe = "tiny";
  manifest.settings = {{"seed", 18446744073709551615u}, {"optimizer.learning_rate", 0.1}, {"name", "\u00e9\"\n"}};
  manifest.shards = 24;
  manifest.kind = "cpu avx2";
  manifest.versions = {{"tandem", "0.1.0"}};
  manifest.scalars = {{"loss_scale", 65536.0}, {"deep", {{"list", {1, -2, 3.5e-300}}}}};
  manifest.files["model.safetensors"] = {123, "xxh128:00", {{"fc1.weight", "xxh64:0123456789abcdef"}}};
  manifest.files["state.safetensors.zst"] = {456, "xxh128:00", {}, 45, "xxh128:01"};
  return manifest;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

}  // namespace

TEST(Manifest, RoundTripKeepsEveryValue) {
  const Manifest before = example();
  const Manifest after = Manifest::parse(before.to_text());
  EXPECT_EQ(after.step, before.step);
  EXPECT_EQ(after.run_id, before.run_id);
  EXPECT_EQ(after.settings, before.settings);
  EXPECT_EQ(after.scalars, before.scalars);
  EXPECT_EQ(after.shards, 24);
  EXPECT_EQ(after.kind, before.kind);
  EXPECT_EQ(after.files.at("model.safetensors").size, 123u);
  EXPECT_EQ(after.files.at("model.safetensors").tensors, before.files.at("model.safetensors").tensors);
  EXPECT_EQ(after.files.at("state.safetensors.zst").packed_size, 45u);
  EXPECT_EQ(after.files.at("state.safetensors.zst").packed_checksum, "xxh128:01");
  EXPECT_EQ(after.to_text(), before.to_text());
}

TEST(Manifest, NanAndInfinitySurvive) {
  Manifest manifest = example();
  const double infinity = std::numeric_limits<double>::infinity();
  manifest.scalars = {{"best", infinity}, {"list", {-infinity, std::nan("")}}};
  const Manifest after = Manifest::parse(manifest.to_text());
  EXPECT_EQ(after.scalars["best"], infinity);
  EXPECT_EQ(after.scalars["list"][0], -infinity);
  EXPECT_TRUE(std::isnan(after.scalars["list"][1].get<double>()));
}

TEST(Manifest, NewerFormatIsToldAsSuch) {
  const std::string newer = seal_manifest(replaced(example().to_text(), "\"format\": 2", "\"format\": 3"));
  try {
    Manifest::parse(newer);
    FAIL();
  } catch (const NewerFormatError& error) {
    EXPECT_NE(std::string(error.what()).find("format 3"), std::string::npos);
    EXPECT_NE(error.todo().find("tandem, 0.1.0"), std::string::npos) << error.todo();
    EXPECT_EQ(error.code(), ExitCode::kCheckpointUnusable);
  }
}

TEST(Manifest, SealedNonsenseIsRefusedNotCrashedOn) {
  const std::string text = example().to_text();
  const std::pair<std::string, std::string> changes[] = {
      {"\"step\": 9000000000", "\"step\": -1"},
      {"\"step\": 9000000000", "\"step\": 1.5"},
      {"\"step\": 9000000000", "\"step\": 99999999999999999999"},
      {"\"shards\": 24", "\"shards\": 3000000000"},
      {"\"recipe\": \"tiny\"", "\"recipe\": 3"},
      {"\"size\": 123", "\"size\": \"123\""},
      {"\"files\": {", "\"files\": [{"},
      {"\"size\": 45\n", "\"size\": 0\n"},
      {"\"packed\": {", "\"packed\": 7, \"x\": {"},
      {"\"kind\":", "\"kind\""},
      {"\"tensors\": {", "\"tensers\": {"},
  };
  for (const auto& [from, to] : changes)
    EXPECT_THROW(Manifest::parse(seal_manifest(replaced(text, from, to))), CheckpointError) << to;
  EXPECT_THROW(Manifest::parse("{}"), CheckpointError);
  EXPECT_THROW(Manifest::parse(""), CheckpointError);
}

TEST(Manifest, OneThatCouldNotBeReadAgainIsNotWritten) {
  Manifest manifest = example();
  auto& tensors = manifest.files["state.safetensors"].tensors;
  for (int i = 0; i < 300'000; ++i) tensors[std::to_string(i)] = "";
  EXPECT_THROW(manifest.to_text(), CheckpointError);
}

}  // namespace tandem
