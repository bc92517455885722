#include "telemetry/progress.h"

#include <gtest/gtest.h>

#include <cmath>

#include "telemetry/human.h"

namespace tandem {
namespace {

ProgressRow full_row() {
  ProgressRow row;
  row.title = "tiny", row.step = 84, row.total = 200, row.fraction = 0.42, row.steps_per_second = 12.34;
  row.units_per_second = 3100, row.eta_seconds = 9.4, row.loss = 0.43123;
  return row;
}

std::string without_color(const std::string& line) {
  std::string out;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\x1b')
      out += line[i];
    else
      while (line[i] != 'm') ++i;
  }
  return out;
}

TEST(Progress, NoLineIsWiderThanTheTerminalAtAnyWidth) {
  std::vector<ProgressState> states(5);
  states[0].rows = {full_row()};
  states[1].rows = {full_row(), full_row(), full_row()};
  states[1].rows[1].title = "a title much longer than anybody should give to a job of a run";
  states[1].rows[2].title = "日本語のとても長い名前のモデルです";
  states[2].rows = {ProgressRow{}};
  states[3].rows = {full_row()};
  states[3].rows[0].step = INT64_MAX, states[3].rows[0].total = INT64_MAX, states[3].rows[0].loss = -INFINITY;
  states[3].rows[0].eta_seconds = 1e9, states[3].rows[0].units_per_second = 1e300, states[3].rows[0].fraction = 7;
  states[4].rows.assign(40, full_row());
  for (ProgressState& state : states)
    for (const bool unicode : {false, true})
      for (const bool color : {false, true})
        for (int width = 20; width <= 200; ++width) {
          state.unicode = unicode;
          const auto lines = render(state, width, color);
          ASSERT_EQ(lines.size(), std::min<size_t>(state.rows.size(), 13));
          for (const auto& line : lines) {
            ASSERT_LE(display_width(without_color(line)), width) << line;
            ASSERT_EQ(line.find('\n'), line.npos);
            ASSERT_TRUE(color || line.find("\x1b") == line.npos);
          }
        }
}

TEST(Progress, AWideTerminalShowsEverything) {
  const std::string line = render({.rows = {full_row()}}, 120, false)[0];
  for (const char* part : {"tiny", "42%", "84/200", "12.3 steps/s", "3.1k samples/s", "ETA 0:09", "loss 0.4312"})
    EXPECT_NE(line.find(part), line.npos) << part << " in " << line;
}

TEST(Progress, PartsGoInOrderAsTheTerminalNarrows) {
  const std::vector<const char*> order = {"samples/s", "84/200", "steps/s", "ETA", "━", "loss"};  // first to go first
  size_t gone = 0;
  for (int width = 140; width >= 20; --width) {
    const std::string line = render({.rows = {full_row()}}, width, false)[0];
    while (gone < order.size() && line.find(order[gone]) == line.npos) ++gone;
    for (size_t i = 0; i < order.size(); ++i)
      EXPECT_EQ(line.find(order[i]) == line.npos, i < gone) << order[i] << " at " << width << ": " << line;
    EXPECT_NE(line.find("42%"), line.npos) << width;
  }
  EXPECT_NE(render({.rows = {full_row()}}, 23, false)[0].find("loss"), std::string::npos);
}

TEST(Progress, AResultStaysLongestAndTheLossBesideItGoesEarly) {
  ProgressRow row = full_row();
  row.result = "return 187.4  score 0.73";
  const std::vector<const char*> order = {"samples/s", "84/200", "loss", "steps/s", "ETA", "━", "return"};
  size_t gone = 0;
  for (int width = 150; width >= 20; --width) {
    const std::string line = render({.rows = {row}}, width, false)[0];
    ASSERT_LE(display_width(line), width);
    while (gone < order.size() && line.find(order[gone]) == line.npos) ++gone;
    for (size_t i = 0; i < order.size(); ++i)
      EXPECT_EQ(line.find(order[i]) == line.npos, i < gone) << order[i] << " at " << width << ": " << line;
  }
  EXPECT_EQ(progress_line(row),
            "tiny  42%  step 84/200  12.3 steps/s  3.1k samples/s  ETA 0:09  return 187.4  score 0.73  loss 0.4312");
}

TEST(Progress, TheBarFillsWithTheFraction) {
  ProgressState state{.rows = {full_row()}, .unicode = false};
  const auto filled = [&](double fraction) {
    state.rows[0].fraction = fraction;
    const std::string line = render(state, 120, false)[0];
    return std::count(line.begin(), line.end(), '#');
  };
  EXPECT_EQ(filled(0), 0);
  EXPECT_GT(filled(0.5), 5);
  EXPECT_EQ(filled(1), 2 * filled(0.5));
}

TEST(Progress, UnknownValuesAreLeftOutNotShownAsZero) {
  ProgressRow row;
  row.title = "x", row.step = 3;
  EXPECT_EQ(progress_line(row), "x  step 3");
  EXPECT_EQ(progress_line(full_row()), "tiny  42%  step 84/200  12.3 steps/s  3.1k samples/s  ETA 0:09  loss 0.4312");
}

TEST(ProgressMeter, FindsSpeedAndTimeLeft) {
  ProgressMeter meter(0, 1000, 0, 100.0);
  double now = 100;
  for (int64_t step = 1; step <= 500; ++step) {
    now += 0.02;
    meter.record(step, 32, 1.0);
    meter.row(now);
  }
  const ProgressRow row = meter.row(now);
  EXPECT_NEAR(row.steps_per_second, 50, 0.5);
  EXPECT_NEAR(row.units_per_second, 1600, 16);
  EXPECT_NEAR(row.eta_seconds, 10, 0.2);
  EXPECT_DOUBLE_EQ(row.fraction, 0.5);
}

TEST(ProgressMeter, AResumedRunDoesNotCountEarlierStepsAsSpeed) {
  ProgressMeter meter(900, 1000, 0, 0);
  for (int i = 1; i <= 10; ++i) meter.record(900 + i, 1, 1.0);
  EXPECT_NEAR(meter.row(1).steps_per_second, 10, 1e-9);
}

TEST(ProgressMeter, TheLimitThatComesFirstDecides) {
  ProgressMeter meter(0, 1000, 20, 0);
  meter.record(10, 1, 1.0);
  const ProgressRow row = meter.row(10);  // a step a second: 990 s by steps, 10 s by time
  EXPECT_DOUBLE_EQ(row.fraction, 0.5);
  EXPECT_NEAR(row.eta_seconds, 10, 1e-9);
}

struct Screen {
  std::string text;
  int writes = 0;
  ProgressDisplayOptions options(bool tty) {
    return {.tty = tty,
            .color = false,
            .out = [this](std::string_view t) { text += t, ++writes; },
            .width = [] { return 100; }};
  }
};

TEST(ProgressDisplay, DrawsAtMostTenTimesASecondOnATerminal) {
  Screen screen;
  ProgressDisplay display(screen.options(true), 0);
  for (int i = 1; i <= 10000; ++i)
    if (const double now = i * 0.001; display.due(now)) display.show({.rows = {full_row()}}, now);
  EXPECT_LE(screen.writes, 100);
  EXPECT_GE(screen.writes, 90);
  EXPECT_EQ(screen.text.find('\n'), std::string::npos) << "one row is redrawn in its line";
}

TEST(ProgressDisplay, WritesALineEveryFiveSecondsElsewhere) {
  Screen screen;
  ProgressDisplay display(screen.options(false), 0);
  for (int i = 1; i <= 300; ++i)
    if (const double now = i * 0.1; display.due(now)) display.show({.rows = {full_row()}}, now);
  EXPECT_EQ(screen.writes, 6);
  EXPECT_EQ(std::count(screen.text.begin(), screen.text.end(), '\n'), 6);
  EXPECT_EQ(screen.text.find('\x1b'), std::string::npos);
}

TEST(ProgressDisplay, SeveralRowsAreRedrawnInPlaceAndALineGoesAboveThem) {
  Screen screen;
  ProgressDisplay display(screen.options(true), 0);
  display.show({.rows = {full_row(), full_row()}}, 1);
  screen.text.clear();
  display.show({.rows = {full_row(), full_row()}}, 2);
  EXPECT_TRUE(screen.text.starts_with("\x1b[1A\r"));
  EXPECT_EQ(std::count(screen.text.begin(), screen.text.end(), '\n'), 1);
  screen.text.clear();
  display.say("hello");
  EXPECT_TRUE(screen.text.starts_with("\x1b[1A\r\x1b[Jhello\n"));
  EXPECT_NE(screen.text.find("42%"), screen.text.npos);
  screen.text.clear();
  display.clear();
  EXPECT_EQ(screen.text, "\x1b[1A\r\x1b[J");
}

}  // namespace
}  // namespace tandem
