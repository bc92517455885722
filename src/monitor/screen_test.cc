// The terminal's lines, over every size.
#include "monitor/screen.h"

#include <gtest/gtest.h>

#include <cmath>

#include "monitor/samples_for_tests.h"
#include "telemetry/human.h"

namespace tandem {
namespace {

std::string text_of(const std::vector<ScreenLine>& lines) {
  std::string text;
  for (const ScreenLine& line : lines) {
    for (const Piece& piece : line) text += piece.text;
    text += '\n';
  }
  return text;
}

TEST(Screen, FitsEverySizeFromNothingTo250x80) {
  for (const bool utf8 : {true, false}) {
    for (const int gpus : {0, 1, 8}) {
      MonitorSample sample = sample_for_tests(gpus, 3);
      sample.runs[0].warning = "ein Wörtchen über 日本語 and more";
      Trails trails;
      for (int i = 0; i < 400; ++i) trails.add(sample);
      for (int width = 1; width <= 250; width += width < 130 ? 1 : 7) {
        for (int height = 1; height <= 80; height += height < 30 ? 1 : 9) {
          ScreenState state;
          state.utf8 = utf8;
          state.scroll = height * 3;
          state.help = height % 7 == 3;
          const auto lines = draw_screen(sample, trails, state, width, height);
          ASSERT_LE(static_cast<int>(lines.size()), height);
          for (const ScreenLine& line : lines) {
            int used = 0;
            for (const Piece& piece : line) {
              used += display_width(piece.text);
              for (const char c : piece.text) {
                ASSERT_GE(static_cast<unsigned char>(c), 0x20);
                ASSERT_TRUE(utf8 || static_cast<unsigned char>(c) < 0x7F);
              }
            }
            ASSERT_LE(used, width) << width << "x" << height;
          }
        }
      }
    }
  }
}

TEST(Screen, OfUsualSizesShowsEveryGpuAndRun) {
  const MonitorSample sample = sample_for_tests(8, 1);
  Trails trails;
  for (const auto& [width, height] : {std::pair{80, 24}, {120, 40}, {250, 80}}) {
    ScreenState state;
    const std::string text = text_of(draw_screen(sample, trails, state, width, height));
    EXPECT_NE(text.find("97 %"), std::string::npos) << text;  // the eighth GPU
    EXPECT_NE(text.find("r6k9d0"), std::string::npos) << text;
    EXPECT_NE(text.find("84 of 300"), std::string::npos) << text;
    EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
    EXPECT_NE(text.find("q quit"), std::string::npos) << text;
  }
}

TEST(Screen, ScrollsToWhatDoesNotFit) {
  const MonitorSample sample = sample_for_tests(8, 2);
  Trails trails;
  ScreenState state;
  EXPECT_EQ(text_of(draw_screen(sample, trails, state, 40, 10)).find("r6k9d1"), std::string::npos);
  state.scroll = 1000;
  EXPECT_NE(text_of(draw_screen(sample, trails, state, 40, 10)).find("r6k9d1"), std::string::npos);
  EXPECT_LT(state.scroll, 1000);
}

TEST(Screen, NamesALostGpuAndAStalledRun) {
  MonitorSample sample = sample_for_tests(2, 1);
  sample.gpus[1] = GpuReading{.index = 1, .trouble = "GPU is lost", .lost = true};
  sample.runs[0].since_step_s = 120;
  sample.runs[0].steps_per_s.reset();
  Trails trails;
  ScreenState state;
  const std::string text = text_of(draw_screen(sample, trails, state, 100, 30));
  EXPECT_NE(text.find("GPU is lost"), std::string::npos) << text;
  EXPECT_NE(text.find("no step for 2:00"), std::string::npos) << text;
}

TEST(Screen, SaysWhyNoHistoryIsKept) {
  const MonitorSample sample = sample_for_tests(1, 0);
  ScreenState state;
  state.note = "history: /home/a/h.sqlite: unable to open database file; it is kept in memory";
  const std::string text = text_of(draw_screen(sample, Trails(), state, 140, 24));
  EXPECT_NE(text.find("unable to open"), std::string::npos) << text;
}

TEST(Sparkline, IsAsWideAsAskedAndLeavesGaps) {
  const std::deque<float> points = {0, 50, std::nanf(""), 100};
  EXPECT_EQ(sparkline(points, 6, false, 0, 100), "  _+ #");
  EXPECT_EQ(display_width(sparkline(points, 10, true, 0, 100)), 10);
  EXPECT_EQ(sparkline({}, 3, true, 0, 1), "   ");
  EXPECT_EQ(sparkline(points, 0, true, 0, 1), "");
}

}  // namespace
}  // namespace tandem
