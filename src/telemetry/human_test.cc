#include "telemetry/human.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tandem {
namespace {

TEST(Human, NumbersKeepThreeDigitsAndAUnit) {
  EXPECT_EQ(short_number(0.01234), "0.0123");
  EXPECT_EQ(short_number(12.34), "12.3");
  EXPECT_EQ(short_number(999.9), "1k");
  EXPECT_EQ(short_number(1254), "1.25k");
  EXPECT_EQ(short_number(3.1e6), "3.1M");
  EXPECT_EQ(short_number(NAN), "-");
}

TEST(Human, DurationsGrowWithTheirUnits) {
  EXPECT_EQ(duration_text(7), "0:07");
  EXPECT_EQ(duration_text(750), "12:30");
  EXPECT_EQ(duration_text(11100), "3:05:00");
  EXPECT_EQ(duration_text(187200), "2d 04:00:00");
  EXPECT_EQ(duration_text(NAN), "-");
  EXPECT_EQ(duration_text(-1), "-");
}

TEST(Human, TimesAreUtc) {
  EXPECT_EQ(utc_iso(1794707226.5), "2026-11-15T01:47:06Z");
  EXPECT_EQ(utc_iso(1794707226.5, true), "2026-11-15T01:47:06.500Z");
}

TEST(Human, WidthCountsColumnsNotBytes) {
  EXPECT_EQ(display_width("abc"), 3);
  EXPECT_EQ(display_width("né"), 2);
  EXPECT_EQ(display_width("日本"), 4);
  EXPECT_EQ(display_width("e\xCC\x81"), 1);  // a combining accent
  EXPECT_EQ(display_width("\xFF\xC3"), 2);   // no UTF-8: a column per byte, nothing read past the end
}

TEST(Human, FitNeverExceedsItsWidthAndMarksTheCut) {
  EXPECT_EQ(fit("abcdef", 6), "abcdef");
  EXPECT_EQ(fit("abcdef", 4), "abc~");
  EXPECT_EQ(fit("日本語", 4), "日~");
  EXPECT_EQ(fit("a\nb\x1b[2J", 20), "a b [2J");
  for (int width = 0; width < 12; ++width) EXPECT_LE(display_width(fit("aé日本e\xCC\x81\xFFxyz", width)), width);
}

}  // namespace
}  // namespace tandem
