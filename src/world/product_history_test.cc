#include "world/product_history.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "base/errors.h"
#include "base/temp_dir.h"

namespace tandem {
namespace {

const HistoryShape kSmall{2, 3, {"analysis", "evolution"}};
constexpr const char* kGood =
    R"({"agent":"evolution","state":[1,2.5],"action":2,"reward":-0.5,"next_state":[3,4],"done":true})";

HistoryRead read(std::string_view text, const HistoryShape& shape = kSmall, std::string* rows = nullptr) {
  HistoryReader reader(shape, [&](const HistoryRow& t) {
    if (rows != nullptr) *rows += history_line(shape.agents.empty() ? "" : shape.agents[t.agent], t);
  });
  reader.feed(text);
  return reader.finish();
}

std::string reason(const std::string& line) {
  const HistoryRead got = read(line);
  EXPECT_EQ(got.rows, 0);
  return got.first_bad.empty() ? "none" : got.first_bad[0].reason;
}

TEST(History, AGoodLineIsReadAndWrittenWithTheSameBits) {
  HistoryRow got;
  std::vector<float> state;
  HistoryReader reader(kSmall, [&](const HistoryRow& t) {
    got = t;
    state.assign(t.state.begin(), t.state.end());
  });
  reader.feed(std::string(kGood) + "\n");
  const HistoryRead sum = reader.finish();
  EXPECT_EQ(sum.rows, 1);
  EXPECT_EQ(sum.bad, 0);
  EXPECT_EQ(sum.rows_of, (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(got.agent, 1);
  EXPECT_EQ(got.action, 2);
  EXPECT_EQ(got.reward, -0.5f);
  EXPECT_TRUE(got.done);
  EXPECT_EQ(state, (std::vector<float>{1, 2.5f}));

  const float odd[2] = {0.1f, -1.17549435e-38f}, other[2] = {3.4028235e38f, 1e-45f};
  const std::string line = history_line("analysis", {0, 1, 1.0f / 3, false, odd, other});
  std::string again;
  EXPECT_EQ(read(line, kSmall, &again).rows, 1);
  EXPECT_EQ(line, again);
}

TEST(History, PiecesOfAnySizeGiveTheSame) {
  const std::string text = std::string(kGood) + "\n\n  \r\n{\"agent\":1}\n" + kGood;
  for (size_t piece = 1; piece < text.size(); ++piece) {
    int rows = 0;
    HistoryReader reader(kSmall, [&](const HistoryRow&) { ++rows; });
    for (size_t at = 0; at < text.size(); at += piece) reader.feed(std::string_view(text).substr(at, piece));
    const HistoryRead got = reader.finish();
    EXPECT_EQ(rows, 2);
    EXPECT_EQ(got.lines, 3);
    EXPECT_EQ(got.bad, 1);
    EXPECT_EQ(got.first_bad[0].number, 4);
  }
}

TEST(History, BadLinesAreNamed) {
  EXPECT_EQ(reason("{\"agent\":\"x"), "is not JSON from byte 12 on");
  EXPECT_EQ(reason("[1,2]"), "is not an object");
  EXPECT_EQ(reason("17"), "is not an object");
  EXPECT_EQ(reason(R"({"agent":"evolution"})"), "has no \"state\"");
  EXPECT_EQ(reason(R"({"agent":"chess"})"), "\"agent\" is 'chess', which is not known");
  EXPECT_EQ(reason(R"({"agent":3})"), "\"agent\" is a number");
  EXPECT_EQ(reason(R"({"state":[1,2,3]})"), "\"state\" has more than 2 numbers");
  EXPECT_EQ(reason(R"({"agent":"analysis","state":[1],"action":0,"reward":0,"next_state":[1,2],"done":false})"),
            "\"state\" has 1 numbers, not 2");
  EXPECT_EQ(reason(R"({"next_state":[1,null]})"), "\"next_state\" holds null");
  EXPECT_EQ(reason(R"({"state":[1,1e39]})"), "\"state\" has a number at place 1 that no float holds");
  EXPECT_EQ(reason(R"({"state":[1,NaN]})"), "has NaN or Infinity at byte 13");
  EXPECT_EQ(reason(R"({"reward":-Infinity})"), "has NaN or Infinity at byte 12");
  EXPECT_EQ(reason(R"({"state":[[1]]})"), "\"state\" holds an array");
  EXPECT_EQ(reason(R"({"action":3})"), "\"action\" is not a whole number from 0 to 2");
  EXPECT_EQ(reason(R"({"action":-1})"), "\"action\" is not a whole number from 0 to 2");
  EXPECT_EQ(reason(R"({"action":0.5})"), "\"action\" is not a whole number from 0 to 2");
  EXPECT_EQ(reason(R"({"reward":1e60})"), "\"reward\" is a number that no float holds");
  EXPECT_EQ(reason(R"({"done":1})"), "\"done\" is a number");
  EXPECT_EQ(reason(R"({"done":true,"done":false})"), "\"done\" is there twice");
  EXPECT_EQ(reason(R"({"other":{"a":1}})"), "a field that is not known holds an object");
  EXPECT_EQ(reason(std::string(HistoryReader::kLongestLine + 1, ' ') + "x"), "is longer than 1048576 bytes");
}

TEST(History, PlainFieldsThatAreNotKnownAreLeftAlone) {
  std::string line = kGood;
  line.insert(1, R"("time":"2026-11-15","run":7,"note":null,"ok":true,)");
  EXPECT_EQ(read(line).rows, 1);
}

TEST(History, WithoutNamesTheAgentMayBeLeftOut) {
  EXPECT_EQ(read(R"({"state":[1],"action":0,"reward":0,"next_state":[1],"done":false})", {1, 2, {}}).rows, 1);
}

TEST(History, TheFirstFewBadLinesAreKeptAndAllAreCounted) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += i % 2 ? std::string(kGood) + "\n" : "no\n";
  const HistoryRead got = read(text);
  EXPECT_EQ(got.rows, 50);
  EXPECT_EQ(got.bad, 50);
  EXPECT_EQ(got.first_bad.size(), HistoryReader::kNamed);
  EXPECT_EQ(got.first_bad[1].number, 3);
  EXPECT_EQ(got.complaint().substr(0, 60), "50 of 100 lines are bad: line 1 is not JSON from byte 2 on; ");
}

TEST(History, AFileWithoutAGoodLineIsRefused) {
  const TempDir dir;
  const auto file = dir.path() / "h.jsonl";
  EXPECT_THROW(read_history(file, kSmall, [](const HistoryRow&) {}), IoError);
  std::ofstream(file) << "no\n";
  EXPECT_THROW(read_history(file, kSmall, [](const HistoryRow&) {}), ConfigError);
  std::ofstream(file) << "no\n" << kGood << "\n";
  EXPECT_EQ(read_history(file, kSmall, [](const HistoryRow&) {}).rows, 1);
}

}  // namespace
}  // namespace tandem
