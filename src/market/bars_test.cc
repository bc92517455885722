#include "market/bars.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/errors.h"
#include "market/csv_rows.h"
#include "market/dates.h"

namespace tandem {
namespace {

const std::string kBarHeader = "date,open,high,low,close,volume\n";

struct CheckedBars {
  SymbolBars read;
  DataFindings findings;
};
CheckedBars checked_bars(const std::string& text, const BarRules& rules = {}) {
  CheckedBars out;
  out.read = read_bars(text, "A", "A.csv", out.findings);
  check_bars(out.read, rules, out.findings);
  return out;
}

// The only finding there is, as it is printed.
std::string only_finding(const std::string& text, const BarRules& rules = {}) {
  const CheckedBars checked = checked_bars(text, rules);
  const auto& list = checked.findings.list();
  return list.size() == 1 ? list[0].render() : std::to_string(list.size()) + " findings:\n" + checked.findings.render();
}

TEST(Dates, AreReadInBothSpellingsAndRefusedWhenTheCalendarHasNone) {
  EXPECT_EQ(parse_date("2024-02-29"), 20240229);
  EXPECT_EQ(parse_date("20240229"), 20240229);
  EXPECT_EQ(parse_date("2024-02-29 00:00:00"), 20240229);
  EXPECT_EQ(parse_date("2024-02-29T16:00Z"), 20240229);
  for (const char* bad : {"", "2023-02-29", "2024-13-01", "2024-00-10", "2024-1-1", "240229", "2024/02/29", "202402291",
                          "1899-12-31", "2024-02-2x", "2024-04-31"})
    EXPECT_FALSE(parse_date(bad)) << bad;
}

TEST(Dates, CountDaysAndWeekdays) {
  EXPECT_EQ(day_number(19700101), 0);
  EXPECT_EQ(day_number(20000301), 11017);
  EXPECT_EQ(weekday(20241231), 1);
  for (int64_t day = -20000; day < 80000; day += 13) EXPECT_EQ(day_number(date_of_day(day)), day);
}

TEST(Bars, ColumnsMayStandInAnyOrderAndOthersAreIgnored) {
  const CheckedBars checked = checked_bars(
      "\xEF\xBB\xBFVolume, Close ,ticker,High,Low,Open,DATE\r\n"
      "100,10.5,\"A, Inc\",11,9,10,20240102\r\n\r\n1e2,10.6,A,11,9,10.5,2024-01-03");
  EXPECT_TRUE(checked.findings.list().empty()) << checked.findings.render();
  ASSERT_EQ(checked.read.bars.size(), 2u);
  const Bar& bar = checked.read.bars[1];
  EXPECT_EQ(bar.open, 10.5);
  EXPECT_EQ(bar.high, 11);
  EXPECT_EQ(bar.low, 9);
  EXPECT_EQ(bar.close, 10.6);
  EXPECT_EQ(bar.volume, 100);
  EXPECT_EQ(bar.date, 20240103);
  EXPECT_EQ(bar.line, 4);
}

TEST(Bars, EachFaultIsNamedWithFileAndLine) {
  const std::string good = kBarHeader + "2024-01-02,10,11,9,10,5\n";
  EXPECT_EQ(only_finding("date,open,high,low,close\n2024-01-02,1,1,1,1\n"),
            "error    A.csv:1: columns: the header lacks volume; it has: date, open, high, low, close");
  EXPECT_EQ(only_finding(""), "error    A.csv: columns: the file is empty: it has no header");
  EXPECT_EQ(only_finding("date,open,high,low,close,volume,close\n"),
            "error    A.csv:1: columns: the column close stands there twice");
  EXPECT_EQ(only_finding(good + "2024-01-03,10,11,9,10\n"), "error    A.csv:3: line: 5 fields where the header has 6");
  EXPECT_EQ(only_finding(good + "2024-01-03,ten,11,9,10,5\n"),
            "error    A.csv:3: number: open is 'ten', which is no number");
  EXPECT_EQ(only_finding(good + "2024-01-03,10,11,9,,5\n"),
            "error    A.csv:3: number: close is nothing, which is no number");
  EXPECT_EQ(only_finding(good + "2024-01-03,10,nan,9,10,5\n"), "error    A.csv:3: nan: high is nan");
  EXPECT_EQ(only_finding(good + "03.01.2024,10,11,9,10,5\n"),
            "error    A.csv:3: date: the date is '03.01.2024', expected YYYY-MM-DD or YYYYMMDD");
  EXPECT_EQ(only_finding(good + "2024-01-03,10,11,0,10,5\n"), "error    A.csv:3: price: low is 0: a price is above 0");
  EXPECT_EQ(only_finding(good + "2024-01-03,10,9,11,10,5\n"), "error    A.csv:3: range: high 9 is below low 11");
  EXPECT_EQ(only_finding(good + "2024-01-03,10,11,9,12,5\n"),
            "error    A.csv:3: range: close 12 is outside of low 9 to high 11");
  EXPECT_EQ(only_finding(good + "2024-01-03,10,11,9,11.001,5\n"),
            "warning  A.csv:3: range: close 11.001 is outside of low 9 to high 11");
  EXPECT_EQ(only_finding(good + "2024-01-03,10,11,9,10,-5\n"),
            "error    A.csv:3: volume: volume is -5: it is never below 0");
  EXPECT_EQ(only_finding(good + "2024-01-02,10,11,9,10,5\n"),
            "error    A.csv:3: duplicate: 2024-01-02 stands there twice");
  EXPECT_EQ(only_finding(good + "2024-01-01,10,11,9,10,5\n"),
            "error    A.csv:3: order: 2024-01-01 stands after 2024-01-02: dates must rise");
  EXPECT_EQ(only_finding(good + "2024-01-10,10,11,9,10,5\n"),
            "warning  A.csv:3: gap: 8 days without a bar, 2024-01-02 to 2024-01-10");
  EXPECT_EQ(only_finding(good + "2024-03-10,10,11,9,10,5\n"),
            "error    A.csv:3: gap: 68 days without a bar, 2024-01-02 to 2024-03-10");
  EXPECT_EQ(
      only_finding(good + "2024-01-03,5.02,5.5,5,5.1,5\n"),
      "error    A.csv:3: split: close 10 of 2024-01-02, then open 5.02: probably a 2-for-1 split that prices were "
      "not adjusted for");
  EXPECT_EQ(only_finding(good, {.today = 20240101}),
            "error    A.csv:2: future: 2024-01-02 is in the future (today is 2024-01-01)");
  EXPECT_EQ(only_finding(good, {.least_bars = 2}),
            "error    A.csv: short: 1 days; at least 2 are needed for the features and one window");
}

TEST(Bars, AWeekOfHolidaysIsNoGap) {
  const auto checked = checked_bars(kBarHeader + "2001-09-10,10,11,9,10,5\n2001-09-17,10,11,9,10,5\n");
  EXPECT_TRUE(checked.findings.list().empty());
}

TEST(Bars, SplitsAreKnownByTheirUsualRatios) {
  EXPECT_EQ(probable_split(400, 100.5), "4-for-1");
  EXPECT_EQ(probable_split(150, 99.8), "3-for-2");
  EXPECT_EQ(probable_split(1, 9.9), "1-for-10");
  EXPECT_EQ(probable_split(100, 88), "");
  EXPECT_EQ(probable_split(100, 43), "");
  const std::string text = kBarHeader + "2024-01-02,10,11,9,10,5\n2024-01-03,5.02,5.5,5,5.1,5\n";
  EXPECT_EQ(checked_bars(text, {.accept_jumps = true}).findings.errors(), 0);
  EXPECT_EQ(checked_bars(text, {.accept_jumps = true}).findings.warnings(), 1);
}

TEST(Bars, ManyFaultsOfAKindAreCountedAndErrorsAreRefused) {
  std::string text = kBarHeader;
  for (int i = 0; i < 50; ++i) text += "x,1,1,1,1,1\n";
  const CheckedBars checked = checked_bars(text);
  EXPECT_EQ(checked.findings.errors(), 50);
  EXPECT_EQ(checked.findings.list().size(), 20u);
  EXPECT_NE(checked.findings.render().find("and 30 more of kind date in A.csv"), std::string::npos);
  try {
    checked.findings.refuse_errors("prices");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "the market data in prices have 50 errors");
    EXPECT_NE(error.why().find("A.csv:2: the date is 'x'"), std::string::npos);
    EXPECT_NE(error.todo().find("tandem data check options prices"), std::string::npos);
  }
  EXPECT_NO_THROW(DataFindings().refuse_errors("prices"));
}

TEST(CsvRows, QuotesEndAndLinesAreBounded) {
  EXPECT_EQ(only_finding(kBarHeader + "2024-01-02,\"10,11,9,10,5\n"),
            "error    A.csv:2: line: the line is too long, has too many fields, or a quote does not end");
  EXPECT_EQ(only_finding(kBarHeader + std::string(70000, ',') + "\n"),
            "error    A.csv:2: line: the line is too long, has too many fields, or a quote does not end");
  EXPECT_TRUE(checked_bars(kBarHeader + "\"2024-01-02\", \"10\" ,11,9,10,\"5\"\n").findings.list().empty());
  EXPECT_EQ(parse_number("1e3"), 1000);
  EXPECT_EQ(parse_number("+1.5"), 1.5);
  for (const char* bad : {"", "1,5", "1 ", "0x10", "--1", "1e", "."}) EXPECT_FALSE(parse_number(bad)) << bad;
}

}  // namespace
}  // namespace tandem
