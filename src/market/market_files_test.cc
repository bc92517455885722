#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/errors.h"
#include "base/temp_dir.h"
#include "market/chain.h"
#include "market/dates.h"
#include "market/generated_market.h"
#include "market/market_source.h"
#include "market/market_table.h"
#include "market/option_math.h"

namespace tandem {
namespace {

void put_file(const std::filesystem::path& path, const std::string& text) { std::ofstream(path) << text; }

// `days` bars that nothing is wrong with.
std::string good_bars(int days, double spot = 100) {
  const MarketData data = generate_market({.symbols = 1, .days = std::max(days, 101), .seed = 21}).data;
  std::string text = "date,open,high,low,close,volume\n";
  for (int i = 0; i < days; ++i) {
    const Bar& bar = data.symbols[0].bars[static_cast<size_t>(i)];
    const double scale = spot / 100;
    text += date_text(bar.date);
    for (const double x : {bar.open, bar.high, bar.low, bar.close}) text += "," + std::to_string(x * scale);
    text += ",1000\n";
  }
  return text;
}

MarketFolderOptions test_rules() {
  MarketFolderOptions options;
  options.rules = {.least_bars = 101, .today = 20300101};
  return options;
}

std::string findings_of(const std::filesystem::path& folder) {
  return read_market_folder(folder, test_rules()).findings.render();
}

TEST(MarketFolder, ReadsEverySymbolByItsFileName) {
  const TempDir folder;
  put_file(folder / "BBB.csv", good_bars(110));
  put_file(folder / "AAA.csv", good_bars(120));
  put_file(folder / "README.txt", "no data");
  put_file(folder / ".hidden.csv", "no data");
  const MarketData data = load_market({.folder = folder.path(), .folder_options = test_rules()});
  ASSERT_EQ(data.symbols.size(), 2u);
  EXPECT_EQ(data.symbols[0].name, "AAA");
  EXPECT_EQ(data.symbols[0].bars.size(), 120u);
  EXPECT_EQ(data.symbols[1].name, "BBB");
  EXPECT_FALSE(data.generated);
  EXPECT_NE(data.description.find("ESTIMATED, not quoted"), std::string::npos) << data.description;
  MarketFolderOptions one = test_rules();
  one.symbols = {"BBB"};
  EXPECT_EQ(load_market({.folder = folder.path(), .folder_options = one}).symbols.size(), 1u);
}

TEST(MarketFolder, AFileThatIsNotNamedByASymbolIsRefused) {
  for (const char* name : {"B,C.csv", "=x.csv", "B\xff.csv", "a b.csv"}) {
    const TempDir folder;
    put_file(folder / name, good_bars(110));
    EXPECT_THROW(read_market_folder(folder.path(), test_rules()), ConfigError) << name;
  }
  const TempDir folder;
  put_file(folder / "BRK.B-1_^=x.csv", good_bars(110));
  EXPECT_EQ(read_market_folder(folder.path(), test_rules()).files.size(), 1u);
}

TEST(MarketFolder, SaysWhatIsMissing) {
  const TempDir folder;
  const auto why = [&](MarketFolderOptions options, const std::filesystem::path& path) -> std::string {
    try {
      load_market({.folder = path, .folder_options = options});
    } catch (const ConfigError& error) {
      return std::string(error.what()) + " | " + error.why();
    }
    return "";
  };
  EXPECT_NE(why({}, folder / "nowhere").find("is no folder"), std::string::npos);
  EXPECT_NE(why({}, folder.path()).find("holds no market data"), std::string::npos);
  put_file(folder / "AAA.csv", good_bars(110));
  MarketFolderOptions other = test_rules();
  other.symbols = {"ZZZ"};
  EXPECT_NE(why(other, folder.path()).find("has no data of ZZZ | it has: AAA"), std::string::npos);
  put_file(folder / "AAA.csv", good_bars(30));
  EXPECT_NE(why(test_rules(), folder.path()).find("30 days; at least 101"), std::string::npos);
}

TEST(MarketFolder, FollowsNoSymbolicLinkAndOpensNoPipe) {
  const TempDir folder, elsewhere;
  put_file(elsewhere / "AAA.csv", good_bars(110));
  std::filesystem::create_symlink(elsewhere / "AAA.csv", folder / "AAA.csv");
  ASSERT_EQ(mkfifo((folder / "BBB.csv").c_str(), 0600), 0);
  std::filesystem::create_directory(folder / "CCC.csv");
  EXPECT_EQ(findings_of(folder.path()),
            "error    AAA.csv: link: it is a symbolic link, which is not followed: put the file itself there\n"
            "error    BBB.csv: file: it is a pipe\n"
            "error    CCC.csv: file: it is a folder\n");
}

TEST(MarketFolder, ASymbolWithTwoFilesAndOptionsWithoutPricesAreErrors) {
  const TempDir folder;
  put_file(folder / "AAA.csv", good_bars(110));
  put_file(folder / "AAA.parquet", "");
  put_file(folder / "BBB_options.csv", "");
  const std::string found = findings_of(folder.path());
  EXPECT_NE(found.find("AAA.parquet: twice: AAA is there already, as AAA.csv"), std::string::npos) << found;
  EXPECT_NE(found.find("BBB_options.csv: chain: there are options of BBB but no file BBB.csv"), std::string::npos);
}

TEST(MarketFolder, TheCheckNamesSymbolsDaysAndFindings) {
  const TempDir folder;
  put_file(folder / "AAA.csv", good_bars(110) + "2099-01-02,1,1,1,1,1\n");
  const MarketCheck check = check_market_folder({.folder = folder.path(), .folder_options = test_rules()});
  EXPECT_NE(check.summary.find("AAA         111 days  2015-01-05 to 2099-01-02"), std::string::npos) << check.summary;
  EXPECT_NE(check.findings.render().find("AAA.csv:112: future:"), std::string::npos);
  EXPECT_NE(check.findings.render().find("AAA.csv:112: gap:"), std::string::npos);
}

TEST(Parquet, AFileThatIsNoneIsNamed) {
  const TempDir folder;
  put_file(folder / "AAA.parquet", good_bars(110));
  try {
    const std::string found = findings_of(folder.path());
    EXPECT_EQ(found.find("error    AAA.parquet: parquet: this is no Parquet file: "), 0u) << found;
  } catch (const ConfigError& error) {  // where there is no pyarrow, that is said
    EXPECT_STREQ(error.what(), "pyarrow is not installed, which AAA.parquet needs");
    GTEST_SKIP() << error.why();
  }
}

TEST(Parquet, APythonThatIsNotThereIsNamed) {
  const TempDir folder;
  put_file(folder / "AAA.parquet", good_bars(110));
  MarketFolderOptions options = test_rules();
  options.python = "/nowhere/python3";
  try {
    read_market_folder(folder.path(), options);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "pyarrow is not installed, which AAA.parquet needs");
    EXPECT_EQ(error.why(), "/nowhere/python3: No such file or directory");
    EXPECT_NE(error.todo().find("/nowhere/python3 -m pip install pyarrow"), std::string::npos);
  }
}

// Quotes of a smile that is known: volatility .25 at the money, slope -.15, bid and ask 4 % apart.
std::string known_quotes(int32_t date, double spot) {
  std::string text;
  for (const int64_t days : {3, 32, 200})
    for (const char* type : {"call", "P"})
      for (int step = -6; step <= 6; ++step) {
        const double years = static_cast<double>(days) / 365, strike = spot * (1 + 0.02 * step);
        const double volatility = 0.25 - 0.15 * std::log(strike / spot) / std::sqrt(years) + (days == 32 ? 0 : 0.3);
        const double mid =
            option_price(type[0] == 'c' ? OptionType::kCall : OptionType::kPut, spot, strike, years, volatility, 0.03);
        char line[200];
        std::snprintf(line, sizeof line, "%d,%s,%.10g,%s,%.12g,%.12g\n", date,
                      date_text(date_of_day(day_number(date) + days)).c_str(), strike, type, mid * 0.98, mid * 1.02);
        text += line;
      }
  return text;
}
const std::string kChainHeader = "date,expiry,strike,type,bid,ask\n";

TEST(Chain, VolatilitySkewAndSpreadOfAMonthAreFound) {
  DataFindings findings;
  const std::vector<ChainQuote> quotes =
      read_chain(kChainHeader + known_quotes(20240105, 80), "A_options.csv", findings);
  EXPECT_TRUE(findings.list().empty()) << findings.render();
  ASSERT_EQ(quotes.size(), 78u);
  const ImpliedDay day = implied_day(quotes, 20240105, 80, 0.03);
  EXPECT_NEAR(day.volatility, 0.25, 1e-6);
  EXPECT_NEAR(day.skew, -0.15, 1e-5);
  EXPECT_NEAR(day.spread, 0.04, 1e-9);
}

TEST(Chain, DaysWithoutEnoughQuotesSayNothing) {
  DataFindings findings;
  std::vector<ChainQuote> quotes = read_chain(kChainHeader + known_quotes(20240105, 80), "A_options.csv", findings);
  EXPECT_EQ(implied_day({}, 20240105, 80, 0.03).volatility, 0);
  EXPECT_EQ(implied_day(quotes, 20240105, 200, 0.03).volatility, 0);  // strikes of other units, such as before a split
  std::erase_if(quotes, [](const ChainQuote& q) { return q.strike > 80; });
  EXPECT_EQ(implied_day(quotes, 20240105, 80.1, 0.03).volatility, 0);  // one side only
}

TEST(Chain, EachFaultIsNamedWithFileAndLine) {
  const auto only = [](const std::string& line) {
    DataFindings findings;
    read_chain(kChainHeader + line + "\n", "A_options.csv", findings);
    return findings.render();
  };
  EXPECT_EQ(only("2024-01-05,2024-02-02,100,call,1,1.1"), "");
  EXPECT_EQ(only("2024-01-05,soon,100,call,1,1.1"),
            "error    A_options.csv:2: date: expiry is 'soon', expected YYYY-MM-DD or YYYYMMDD\n");
  EXPECT_EQ(only("2024-01-05,2024-02-02,100,future,1,1.1"),
            "error    A_options.csv:2: type: type is 'future', expected call or put\n");
  EXPECT_EQ(only("2024-01-05,2024-02-02,-1,call,1,1.1"),
            "error    A_options.csv:2: price: strike is -1: expected 1e-06 to 1e+09\n");
  EXPECT_EQ(only("2024-01-05,2024-02-02,100,call,,1.1"),
            "error    A_options.csv:2: number: bid is nothing, which is no number\n");
  EXPECT_EQ(only("2024-01-05,2024-02-02,100,call,nan,1.1"), "error    A_options.csv:2: nan: bid is nan\n");
  EXPECT_EQ(only("2024-01-05,2024-01-02,100,call,1,1.1"),
            "error    A_options.csv:2: expiry: expiry 2024-01-02 is before the date 2024-01-05\n");
  EXPECT_EQ(only("2024-01-05,2024-02-02,100,call,1.2,1.1"),
            "warning  A_options.csv:2: crossed: bid 1.2 is above ask 1.1: left out\n");
}

TEST(Chain, OfAFolderBecomesTheDaysVolatility) {
  const TempDir folder;
  put_file(folder / "AAA.csv", good_bars(110));
  const double close = std::stod(
      std::to_string(generate_market({.symbols = 1, .days = 110, .seed = 21}).data.symbols[0].bars[90].close));
  const int32_t date = generate_market({.symbols = 1, .days = 110, .seed = 21}).data.symbols[0].bars[90].date;
  put_file(folder / "AAA_options.csv", kChainHeader + known_quotes(20300105, 80) + known_quotes(date, close));
  const MarketFolder read = read_market_folder(folder.path(), test_rules());
  EXPECT_EQ(read.findings.errors(), 0) << read.findings.render();
  EXPECT_NE(read.findings.render().find("78 of 156 quotes are of days without a bar"), std::string::npos);
  EXPECT_NE(read.findings.render().find("the quotes of 109 of 110 days give no volatility"), std::string::npos);
  EXPECT_EQ(ages_of_quotes({.bars = read.files[0].bars.bars, .implied = read.files[0].implied})[93], 3);
  const MarketData data = load_market({.folder = folder.path(), .folder_options = test_rules()});
  const MarketTable table(data);
  EXPECT_NEAR(table.days()[90].volatility, 0.25, 1e-6);
  EXPECT_NEAR(table.days()[90].spread, 0.04, 1e-9);
  EXPECT_NE(data.description.find("quotes of options on 1 days. On other days implied"), std::string::npos)
      << data.description;
  ASSERT_EQ(data.warnings.size(), 1u) << "the user gave a chain to be used";
  EXPECT_EQ(data.warnings[0].find("AAA_options.csv gives the volatility of 1 of 110 days of AAA: "), 0u)
      << data.warnings[0];
}

// Bars of `days` days at this close, with quotes of each day of a spot of `spot`.
std::string findings_of_chain(double close, double spot, int days, const std::string& only_type = "") {
  SymbolBars bars{.symbol = "AAA", .file = "AAA.csv"};
  std::string text = kChainHeader;
  for (int i = 0; i < days; ++i) {
    bars.bars.push_back({close, close, close, close, 1, date_of_day(19800 + i), i + 2});
    text += known_quotes(bars.bars.back().date, spot);
  }
  DataFindings findings;
  std::vector<ChainQuote> quotes = read_chain(text, "AAA_options.csv", findings);
  if (!only_type.empty())  // options out of the money, or of one kind
    std::erase_if(quotes, [&](const ChainQuote& q) {
      const bool call = q.type == OptionType::kCall;
      return only_type == "outside" ? (call ? q.strike <= spot : q.strike >= spot) : only_type == "call" ? !call : call;
    });
  implied_days(quotes, bars, "AAA_options.csv", 0.03, findings);
  return findings.render();
}

TEST(Chain, ThePriceByTheOptionsIsTheCloseOrTheirStrikesAreOfOtherUnits) {
  EXPECT_EQ(findings_of_chain(80, 80, 20), "");
  EXPECT_EQ(findings_of_chain(81, 80, 20), "") << "a dividend of a month";
  for (const double close : {71.0, 90.0, 40.0}) {  // by put-call parity
    const std::string found = findings_of_chain(close, 80, 20);
    EXPECT_EQ(
        found.find("error    AAA_options.csv: strikes: by the options the price is not the close of AAA.csv: on 20 of "
                   "20 days more than 10 % off"),
        0u)
        << found;
  }
  EXPECT_EQ(findings_of_chain(80.5, 80, 20, "outside"), "") << "no strike has a call and a put";
  EXPECT_NE(findings_of_chain(68, 80, 20, "outside").find("error    AAA_options.csv: strikes: "), std::string::npos);
}

TEST(Chain, APriceByTheOptionsThatIsALittleOffOrOnFewDaysIsAWarning) {
  const std::string what = "warning  AAA_options.csv: strikes: by the options the price is not the close of AAA.csv: ";
  for (const double close : {78.0, 84.0}) {  // a stock that is hard to borrow; closes that dividends have lowered
    const std::string found = findings_of_chain(close, 80, 20);
    EXPECT_EQ(found.find(what + "on 20 of 20 days more than 2 % off"), 0u) << found;
    EXPECT_EQ(found.find("error"), std::string::npos) << found;
  }
  const std::string few = findings_of_chain(71, 80, 19);
  EXPECT_EQ(few.find(what + "on 19 of 19 days"), 0u) << few;
  EXPECT_EQ(few.find("error"), std::string::npos) << few;
}

TEST(Chain, StrikesWithoutACallAndAPutBoundThePriceByWhatTheyCost) {
  const double years = 30 / 365.0;
  const auto quote = [&](OptionType type, double strike) {
    const double mid = option_price(type, 80, strike, years, 0.3, 0.03);
    return ChainQuote{20240105, 20240204, type, strike, mid * 0.98, mid * 1.02};
  };
  // In the money a strike alone is on the wrong side of the price.
  const std::vector<ChainQuote> inside = {quote(OptionType::kPut, 84), quote(OptionType::kCall, 76)};
  const std::vector<ChainQuote> above = {quote(OptionType::kPut, 84), quote(OptionType::kCall, 88)};
  for (const auto& quotes : {inside, above}) {
    const auto found = spot_of_quotes(quotes, 20240105, 0.03);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->away(80), 0) << found->low << " to " << found->high;
  }
  EXPECT_LT(spot_of_quotes(inside, 20240105, 0.03)->away(90), -0.05);
  EXPECT_GT(spot_of_quotes(inside, 20240105, 0.03)->away(70), 0.05);
  EXPECT_FALSE(spot_of_quotes(std::vector{inside[0]}, 20240105, 0.03));
}

TEST(Chain, ThatGivesNoVolatilityOnAnyDayIsAnErrorThatNamesIt) {
  const std::string found = findings_of_chain(80, 80, 3, "call");
  EXPECT_EQ(
      found.find("error    AAA_options.csv: chain: none of its 117 quotes gives a volatility on any of the 3 days of "
                 "AAA.csv"),
      0u)
      << found;
}

}  // namespace
}  // namespace tandem
