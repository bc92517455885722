// What other programs read of a sample.
#include "monitor/formats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "monitor/samples_for_tests.h"

namespace tandem {
namespace {

TEST(MonitorJson, HasNumbersWithoutUnitsAndNoKeyForWhatIsNotKnown) {
  const auto json = to_json(sample_for_tests(2, 1));
  const auto& gpu = json["gpus"][1];
  EXPECT_EQ(gpu["utilisation_percent"], 91);
  EXPECT_EQ(gpu["power_w"], 640.5);
  EXPECT_EQ(gpu["throttle"][0], "power_cap");
  EXPECT_FALSE(gpu.contains("fan_percent"));
  EXPECT_EQ(gpu["processes"][0]["run"], "r6k9d0 rank 1");
  EXPECT_EQ(json["runs"][0]["ranks"][1]["first_shard"], 12);
  EXPECT_NEAR(json["runs"][0]["loss"], 0.4312, 1e-9);
  MonitorSample empty;
  EXPECT_FALSE(to_json(empty)["host"].contains("cpu_percent"));
}

TEST(MonitorFormats, TellOfInstancesOfAGpuAndOfRunsThatWereLeftOut) {
  MonitorSample sample = sample_for_tests(1, 1);
  sample.facts[0].mig_on = true;
  sample.facts[0].mig = {{"MIG-a", "1g.10gb", uint64_t{10'000'000'000}}, {"MIG-b", "3g.40gb", std::nullopt}};
  sample.gpus[0].utilisation_percent.reset();  // not reported for a GPU with MIG instances
  sample.runs_left_out = 7;
  const auto json = to_json(sample);
  EXPECT_EQ(json["gpus"][0]["mig"][0]["uuid"], "MIG-a");
  EXPECT_FALSE(json["gpus"][0]["mig"][1].contains("memory_bytes"));
  EXPECT_FALSE(json["gpus"][0].contains("utilisation_percent"));
  EXPECT_EQ(json["runs_left_out"], 7);
  const std::string text = snapshot_text(sample, 300);
  EXPECT_NE(text.find("MIG: 2 instances"), std::string::npos) << text;
  EXPECT_NE(text.find("and 7 more runs"), std::string::npos) << text;
  EXPECT_EQ(prometheus_text(sample).find("utilisation"), std::string::npos);
}

TEST(MonitorFormats, OfALostGpuSayWhoseItWasAndHaveNoFigures) {
  MonitorSample sample = sample_for_tests(2, 0);
  sample.facts[1].trouble = "GPU is lost";
  sample.gpus[1] = GpuReading{.index = 1, .trouble = "GPU is lost", .lost = true};
  const std::string text = prometheus_text(sample);
  EXPECT_NE(text.find("tandem_gpu_up{gpu=\"1\"} 0\n"), std::string::npos) << text;
  EXPECT_NE(text.find("gpu=\"1\",name=\"NVIDIA H100 80GB HBM3\""), std::string::npos) << text;
  EXPECT_EQ(text.find("tandem_gpu_power_watts{gpu=\"1\"}"), std::string::npos) << text;
  EXPECT_FALSE(to_json(sample)["gpus"][1].contains("power_w"));
}

TEST(MonitorFormats, HaveReturnAndScoreOfOneAgentAndOfSeveral) {
  MonitorSample sample = sample_for_tests(0, 2);
  sample.runs[0].figures.take({{"average_return", 187.43}, {"score", 0.734}});
  sample.runs[1].figures.take({{"analysis.score", 0.31}, {"evolution.score", 0.72}});
  const auto json = to_json(sample);
  EXPECT_EQ(json["runs"][0]["average_return"], 187.43);
  EXPECT_EQ(json["runs"][0]["score"], 0.734);
  EXPECT_EQ(json["runs"][1]["agents"]["evolution"]["score"], 0.72);
  const std::string prometheus = prometheus_text(sample);
  EXPECT_NE(prometheus.find("tandem_run_average_return{run=\"tiny-20261115-190920-r6k9d0\"} 187.43\n"),
            std::string::npos)
      << prometheus;
  EXPECT_NE(prometheus.find("r6k9d1\",agent=\"evolution\"} 0.72\n"), std::string::npos) << prometheus;
  const std::string csv = csv_header() + csv_lines(sample);
  EXPECT_NE(csv.find(",ranks,average_return,score\n"), std::string::npos) << csv;
  EXPECT_NE(csv.find(",2,187.43,0.734\n"), std::string::npos) << csv;
  EXPECT_NE(csv.find(",agent,tiny-20261115-190920-r6k9d1,evolution,"), std::string::npos) << csv;
  const std::string text = snapshot_text(sample, 300);
  EXPECT_NE(text.find("return 187.4  score 0.73  loss"), std::string::npos) << text;
  EXPECT_NE(text.find("scores 0.31 to 0.72"), std::string::npos) << text;
}

TEST(MonitorSnapshot, CallsARunByItsAgentBeforeItsId) {
  MonitorSample sample = sample_for_tests(0, 1);
  sample.runs[0].name = "requirements";
  sample.runs[0].id = "web-test-20261115-190920-a1b2c3/requirements";
  EXPECT_NE(snapshot_text(sample, 300).find("run requirements  web-test-20261115-190920-a1b2c3/requirements  running"),
            std::string::npos);
}

TEST(MonitorCsv, HasAsManyCellsInEveryLineAsInItsHead) {
  MonitorSample sample = sample_for_tests(2, 1);
  sample.facts[0].name = "a \"name\", with all";
  std::istringstream lines(csv_header() + csv_lines(sample));
  std::string line;
  const auto cells = [](const std::string& text) {
    int count = 1;
    bool quoted = false;
    for (const char c : text) {
      if (c == '"') quoted = !quoted;
      if (c == ',' && !quoted) ++count;
    }
    return count;
  };
  std::getline(lines, line);
  const int columns = cells(line);
  int rows = 0;
  for (; std::getline(lines, line); ++rows) EXPECT_EQ(cells(line), columns) << line;
  EXPECT_EQ(rows, 4);  // the machine, two GPUs, a run
}

TEST(MonitorPrometheus, NamesEveryFamilyOnceAndLeavesOutWhatIsNotKnown) {
  const std::string text = prometheus_text(sample_for_tests(8, 2));
  std::istringstream lines(text);
  std::set<std::string> families, series;
  std::string line, family;
  while (std::getline(lines, line)) {
    if (line.starts_with("# TYPE ")) {
      family = line.substr(7, line.find(' ', 7) - 7);
      EXPECT_TRUE(families.insert(family).second) << line;
    } else if (!line.starts_with("#")) {
      EXPECT_TRUE(line.starts_with(family + "{") || line.starts_with(family + " ")) << line;
      EXPECT_TRUE(series.insert(line.substr(0, line.rfind(' '))).second) << line;
    }
  }
  EXPECT_TRUE(families.contains("tandem_gpu_power_watts"));
  EXPECT_FALSE(families.contains("tandem_gpu_fan_ratio"));  // not reported: no family either
  EXPECT_NE(text.find("tandem_gpu_utilisation_ratio{gpu=\"7\"} 0.97\n"), std::string::npos) << text;
}

TEST(MonitorPrometheus, EscapesWhatStrangersNamed) {
  MonitorSample sample = sample_for_tests(1, 0);
  sample.facts[0].name = "a \"b\" \\ c\nd";
  EXPECT_NE(prometheus_text(sample).find("name=\"a \\\"b\\\" \\\\ c\\nd\""), std::string::npos);
}

TEST(MonitorSnapshot, ShowsDashesForWhatIsNotKnownAndKeepsToItsWidth) {
  const MonitorSample sample = sample_for_tests(8, 2);
  const std::string text = snapshot_text(sample, 200);
  EXPECT_NE(text.find("640/700 W"), std::string::npos) << text;
  EXPECT_NE(text.find("the power limit"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
  std::istringstream lines(snapshot_text(sample, 60));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 60u) << line;
  MonitorSample none;
  none.gpu_trouble = "libnvidia-ml.so.1: no such file";
  EXPECT_NE(snapshot_text(none).find("no GPU: libnvidia-ml.so.1"), std::string::npos);
}

}  // namespace
}  // namespace tandem
