#include "guard/gpu_log.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/temp_dir.h"

namespace tandem {
namespace {

std::vector<nlohmann::json> lines_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

TEST(GpuLog, StaysBoundedAndEvenlySpaced) {
  const TempDir dir;
  const auto path = dir.path() / "gpus.jsonl";
  GpuLog log(path, 100);
  for (int t = 0; t < 5000; ++t) log.add(1000 + t, t, {GpuFacts{}}, {GpuReading{}});
  const auto lines = lines_of(path);
  EXPECT_GE(lines.size(), 40u);
  EXPECT_LT(lines.size(), 100u);
  EXPECT_EQ(lines.front()["t"], 1000);
  EXPECT_GT(lines.back()["t"].get<double>(), 5800);
  const double width = log.interval_s();
  for (size_t i = 1; i < lines.size(); ++i)
    EXPECT_NEAR(lines[i]["t"].get<double>() - lines[i - 1]["t"].get<double>(), width, width / 2 + 1);
}

TEST(GpuLog, AResumeGoesOnWithTheSpacingItFinds) {
  const TempDir dir;
  const auto path = dir.path() / "gpus.jsonl";
  GpuLog first(path, 10);
  for (int t = 0; t < 60; ++t) first.add(1000 + t, t, {}, {});
  ASSERT_GT(first.interval_s(), 4);
  EXPECT_EQ(GpuLog(path, 10).interval_s(), first.interval_s());
}

TEST(GpuLog, TheTimeBetweenTwoStartsIsNoSpacing) {
  const TempDir dir;
  const auto path = dir.path() / "gpus.jsonl";
  GpuLog(path, 1000).add(1000, 0, {}, {});
  GpuLog(path, 1000).add(90000, 0, {}, {});
  EXPECT_EQ(GpuLog(path, 1000).interval_s(), 1);
  GpuLog whole(path, 10);
  for (int t = 0; t < 60; ++t) whole.add(100000 + t, t, {}, {});
  GpuLog(path, 10).add(900000, 0, {}, {});
  EXPECT_EQ(GpuLog(path, 10).interval_s(), whole.interval_s());
}

TEST(GpuLog, AValueThatIsNotToldIsAbsent) {
  GpuReading reading;
  reading.temperature_c = 61;
  reading.throttle = {Throttle::kPowerCap};
  const auto json = reading_json(GpuFacts{}, reading);
  EXPECT_EQ(json.dump(), R"({"index":0,"temp_c":61,"throttle":["power_cap"]})");
}

}  // namespace
}  // namespace tandem
