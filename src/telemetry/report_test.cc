#include "telemetry/report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/temp_dir.h"
#include "telemetry/atomic_file.h"
#include "telemetry/event_log.h"
#include "telemetry/metrics_file.h"
#include "telemetry/report_data.h"
#include "telemetry/run_summary.h"

namespace tandem {
namespace {

void write_run(const TempDir& dir, int64_t steps, int metrics = 2) {
  MetricsWriter writer(dir / "metrics.jsonl");
  StepRecord r;
  for (int i = 0; i < metrics; ++i) r.metrics.emplace_back("metric_" + std::to_string(i), 0.0);
  r.phase_seconds = {{"learn", 0.006}, {"combine", 0.002}};
  for (int64_t s = 1; s <= steps; ++s) {
    r.step = s, r.loss = 2 / std::sqrt(static_cast<double>(s)) + 0.1 * std::sin(static_cast<double>(s) * 12.9898);
    r.seconds = 0.01, r.samples = 96, r.learning_rate = 1e-3, r.grad_norm = 1 + 0.01 * static_cast<double>(s % 7),
    r.time = 1.7e9 + static_cast<double>(s);
    r.skipped = s == 5;
    for (auto& [name, value] : r.metrics) value = r.loss * 0.37;
    writer.add(r);
  }
}

TEST(Report, IsOneFileThatAsksTheNetworkForNothing) {
  const TempDir dir;
  write_run(dir, 100);
  const std::string html = make_report(dir.path());
  for (const char* foreign : {"http://", "https://", "src=", "@import", "url(", "<link", "fetch(", "XMLHttpRequest"})
    EXPECT_EQ(html.find(foreign), html.npos) << foreign;
  EXPECT_NE(html.find("default-src 'none'"), html.npos) << "the browser refuses it as well";
}

TEST(Report, AMillionStepsStayUnder300KilobytesAnd2000PointsASeries) {
  const TempDir dir;
  write_run(dir, 1000000);
  const std::string html = make_report(dir.path());
  EXPECT_LT(html.size(), 300000u);
  const size_t begin = html.find('{', html.find("id=\"data\""));
  const auto data = nlohmann::json::parse(html.substr(begin, html.find("</script>", begin) - begin));
  EXPECT_EQ(data["facts"]["steps"], 1000000);
  for (const auto& series : data["series"]) {
    EXPECT_LE(series["mean"].size(), 1000u);
    EXPECT_LE(series.value("least", nlohmann::json::array()).size() +
                  series.value("greatest", nlohmann::json::array()).size(),
              2000u);
  }
}

TEST(Report, ManyMetricsGetFewerPointsRatherThanALargerPage) {
  const TempDir dir;
  write_run(dir, 3000, 60);
  EXPECT_LT(make_report(dir.path()).size(), 300000u);
}

TEST(Report, NothingInTheDataCanEndTheScriptOrBecomeMarkup) {
  const TempDir dir;
  {
    MetricsWriter writer(dir / "metrics.jsonl");
    StepRecord r;
    r.step = 1, r.loss = 1, r.metrics = {{"</script><script>alert(1)</script>", 1.0}};
    writer.add(r);
  }
  update_run_json(dir.path(), {{"id", "<b>&\xFF"}, {"recipe", "</script>"}});
  std::ofstream(dir / "recipe.toml") << "key = \"</script><!--\"\n";
  const std::string html = make_report(dir.path());
  size_t count = 0;
  for (size_t at = 0; (at = html.find("</script", at)) != html.npos; ++at) ++count;
  EXPECT_EQ(count, 2u) << "the page's own two";
  EXPECT_EQ(html.find("<b>&"), html.npos);
}

TEST(Report, HoldsWhatTheRunFolderTells) {
  const TempDir dir;
  write_run(dir, 50);
  update_run_json(dir.path(), {{"id", "tiny-20261115-014706-abc234"},
                               {"recipe", "tiny"},
                               {"status", "done"},
                               {"digest", "d1"},
                               {"kind", "k1"}});
  std::ofstream(dir / "recipe.toml") << "seed = 7  # --seed\n[optimizer]\nkind = \"adam\"\n";
  LineFile(dir / "events.jsonl").add(event_line({1.7e9, "warning", 20, "disk is nearly full"}));
  const auto data = collect_report(dir.path());
  EXPECT_EQ(data["status"], "done");
  EXPECT_EQ(data["run"]["digest"], "d1");
  EXPECT_EQ(data["settings"][1], (nlohmann::json{"optimizer.kind", "adam", ""}));
  EXPECT_EQ(data["events"][0]["text"], "disk is nearly full");
  EXPECT_EQ(data["skips"], nlohmann::json{5});
  EXPECT_EQ(data["phases"].size(), 3u) << "learn, combine and the rest of the step";
  EXPECT_NEAR(data["facts"]["samples_per_s"].get<double>(), 9600, 1);
}

TEST(Report, AnEmptyOrDamagedFolderStillGivesAPageThatSaysSo) {
  const TempDir dir;
  EXPECT_NE(make_report(dir.path()).find("holds no record yet"), std::string::npos);
  std::ofstream(dir / "metrics.jsonl") << "garbage\n{\"step\":1,\"loss\":2}\n{\"st";
  std::ofstream(dir / "run.json") << "[1,2";
  std::ofstream(dir / "env.json") << "7";
  std::ofstream(dir / "events.jsonl") << "{}\n";
  EXPECT_NE(make_report(dir.path()).find("1 unreadable lines left out, the first is line 1"), std::string::npos);
}

TEST(Report, ThousandsOfCheckpointsLeaveRoomForWarnings) {
  const TempDir dir;
  {
    std::ofstream file(dir / "events.jsonl");
    for (int i = 0; i < 4000; ++i) file << event_line({1, i % 100 == 50 ? "warning" : "checkpoint", i, "x"}) << "\n";
  }
  const auto events = collect_report(dir.path())["events"];
  EXPECT_LE(events.size(), 300u);
  EXPECT_EQ(std::count_if(events.begin(), events.end(), [](const auto& e) { return e["kind"] == "warning"; }), 40);
}

TEST(Report, ShowsAnEvaluationAndSurvivesADamagedOne) {
  const TempDir dir;
  const auto put = [&](const std::string& text) { std::ofstream(dir / "evaluation.json") << text; };
  for (const char* text : {"", "{", "[]", "{\"agents\":[]}", "{\"agents\":{\"a\":7,\"b\":{\"score\":\"x\"}}}"}) {
    put(text);
    EXPECT_NE(make_report(dir.path()).find("\"evaluation\":[]"), std::string::npos) << text;
  }
  put(R"({"agents":{"</script>":{"score":0.5,"low":0.4,"high":0.6,"terms":{"rca":2},"members":{"m":{"score":1}}}}})");
  const std::string page = make_report(dir.path());
  EXPECT_NE(page.find("\"score\":0.5"), std::string::npos);
  EXPECT_EQ(page.find("\"</script>\""), std::string::npos);
}

}  // namespace
}  // namespace tandem
