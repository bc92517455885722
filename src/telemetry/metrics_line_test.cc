#include "telemetry/metrics_line.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace tandem {
namespace {

StepRecord sample() {
  StepRecord r;
  r.step = 17, r.loss = 0.1 + 0.2, r.seconds = 0.012345678, r.samples = 96, r.learning_rate = 3e-4,
  r.grad_norm = 1.0 / 3;
  r.loss_scale = 65536, r.skipped = true, r.epoch = 2, r.time = 1794707226.125;
  r.metrics = {{"accuracy", 0.75}, {"odd \"name\"\n", -0.0}};
  r.phase_seconds = {{"learn", 0.01}, {"combine", 0.002}};
  return r;
}

std::string line_of(const StepRecord& record) {
  TextBuffer out;
  append_metrics_line(out, record);
  return fmt::to_string(out);
}

std::string reason_for(std::string_view line) {
  StepRecord record;
  std::string reason;
  return parse_metrics_line(line, record, reason) ? "" : reason;
}

TEST(MetricsLine, ReadsBackEveryNumberExactly) {
  const StepRecord was = sample();
  StepRecord is;
  std::string reason;
  ASSERT_TRUE(parse_metrics_line(line_of(was), is, reason)) << reason;
  EXPECT_EQ(is.step, was.step);
  EXPECT_EQ(is.loss, was.loss);
  EXPECT_EQ(is.seconds, was.seconds);
  EXPECT_EQ(is.samples, was.samples);
  EXPECT_EQ(is.learning_rate, was.learning_rate);
  EXPECT_EQ(is.grad_norm, was.grad_norm);
  EXPECT_EQ(is.loss_scale, was.loss_scale);
  EXPECT_EQ(is.skipped, was.skipped);
  EXPECT_EQ(is.epoch, was.epoch);
  EXPECT_EQ(is.time, was.time);
  EXPECT_EQ(is.metrics, was.metrics);
  EXPECT_TRUE(std::signbit(is.metrics[1].second));
  EXPECT_EQ(is.phase_seconds, was.phase_seconds);
}

TEST(MetricsLine, TheFastReaderKnowsOurLinesAndGivesUpOnOthers) {
  StepRecord record;
  EXPECT_TRUE(parse_own_line(R"({"step":3,"loss":null,"seconds":0.5,"samples":8,"lr":1e-3,"grad_norm":-2,"scale":1,)"
                             R"("skipped":false,"epoch":-1,"job":"a","metrics":{"x":1.5,"y":null},"phases":{},"t":7})",
                             record));
  EXPECT_EQ(record.job, "a");
  EXPECT_EQ(record.metrics[0].second, 1.5);
  StepRecord plain = sample();
  plain.metrics = {{"accuracy", 0.1}};
  const std::string line = line_of(plain);
  ASSERT_TRUE(parse_own_line(line, record));
  for (size_t at = 0; at < line.size(); ++at) {  // whatever one changed byte makes of it, both readers agree
    for (const char byte : {'0', '9', '"', '{', '}', ',', '.', '-', 'e', ' ', '\\', 'n', '\xC3'}) {
      std::string changed = line, reason;
      changed[at] = byte;
      StepRecord fast, slow;
      const bool fast_good = parse_own_line(changed, fast), slow_good = parse_any_metrics_line(changed, slow, reason);
      ASSERT_TRUE(!fast_good || slow_good) << changed;
      ASSERT_TRUE(!fast_good || line_of(fast) == line_of(slow)) << changed;
    }
  }
}

TEST(MetricsLine, IsOneObjectWithTheDocumentedKeys) {
  const std::string line = line_of(sample());
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const auto object = nlohmann::json::parse(line);
  for (const char* key :
       {"step", "loss", "seconds", "samples", "lr", "grad_norm", "scale", "skipped", "epoch", "metrics", "phases", "t"})
    EXPECT_TRUE(object.contains(key)) << key;
  EXPECT_EQ(object.size(), 12u);
}

TEST(MetricsLine, WhatJsonCannotSayIsNullAndReadsBackAsAbsent) {
  StepRecord r;
  r.step = 1, r.loss = INFINITY, r.metrics = {{"x", NAN}};
  const auto object = nlohmann::json::parse(line_of(r));
  EXPECT_TRUE(object["loss"].is_null());
  EXPECT_TRUE(object["metrics"]["x"].is_null());
  StepRecord is;
  std::string reason;
  ASSERT_TRUE(parse_metrics_line(line_of(r), is, reason)) << reason;
  EXPECT_TRUE(std::isnan(is.loss));
  EXPECT_TRUE(std::isnan(is.metrics[0].second));
}

TEST(MetricsLine, NamesThatAreNotUtf8StillMakeValidJson) {
  StepRecord r;
  r.step = 1, r.job = "j\xFF", r.metrics = {{"\xC3(", 1}};
  EXPECT_TRUE(nlohmann::json::accept(line_of(r)));
}

TEST(MetricsLine, KeysOfANewerVersionAreIgnored) {
  EXPECT_EQ(reason_for(R"({"step":1,"new":{"deep":[1,{"loss":"x"}]},"list":[1,2],"word":"w","flag":true})"), "");
}

TEST(MetricsLine, EachKindOfDamageIsNamed) {
  EXPECT_EQ(reason_for(R"({"loss":1})"), "no 'step'");
  EXPECT_EQ(reason_for(R"({"step":-1})"), "'step' is negative");
  EXPECT_EQ(reason_for(R"({"step":1.5})"), "'step' is not a whole number but a fraction");
  EXPECT_EQ(reason_for(R"({"step":1,"loss":"low"})"), "'loss' is not a number but a text");
  EXPECT_EQ(reason_for(R"({"step":1,"metrics":{"a":true}})"), "metrics: 'a' is not a number but a truth value");
  EXPECT_EQ(reason_for(R"({"step":1,"metrics":[1]})"), "'metrics' is an array");
  EXPECT_EQ(reason_for(R"({"step":1,"skipped":1})"), "'skipped' is neither true nor false");
  EXPECT_EQ(reason_for(R"([1])"), "not an object");
  EXPECT_EQ(reason_for("7"), "not an object");
  EXPECT_TRUE(reason_for(R"({"step":1,)").starts_with("not JSON at byte"));
  EXPECT_NE(reason_for(R"({"step":1,"loss":1e999})"), "");
  EXPECT_EQ(reason_for(std::string(kLongestMetricsLine + 1, ' ')), "longer than a record can be");
  EXPECT_EQ(reason_for(R"({"step":1,"x":)" + std::string(5000, '[')), "nested too deep");
}

}  // namespace
}  // namespace tandem
