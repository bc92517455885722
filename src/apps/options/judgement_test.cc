#include "apps/options/judgement.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/errors.h"
#include "kernels/philox.h"
#include "market/sharpe.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

// Two symbols, three periods of 60 days one after the other; a period's last day is the first of the next.
struct JudgedMarket {
  std::vector<MarketDay> days;
  std::vector<MarketView::Range> ranges;
  explicit JudgedMarket(int32_t fold) {
    for (int32_t symbol = 0; symbol < 2; ++symbol) {
      double close = 100;
      for (int32_t d = 0; d < 240; ++d) {
        const double open = close;
        close *=
            std::exp(.012 * static_cast<double>(random_normal({7, 0, 0, 1}, static_cast<uint64_t>(500 * symbol + d))));
        days.push_back({.open = open,
                        .high = std::max(open, close),
                        .low = std::min(open, close),
                        .close = close,
                        .volatility = .2,
                        .date = 20200101 + d / 28 * 100 + d % 28,
                        .symbol = symbol});
      }
      ranges.push_back({240 * symbol + 59 + 60 * fold - 60, 240 * symbol + 59 + 60 * fold});
    }
  }
  MarketView view() const { return {.days = days.data(), .rows = 480, .ranges = ranges.data(), .range_count = 2}; }
};

// What a worker would answer whose agent buys a call every `seed` + 2 days.
Json fake_answer(int64_t fold, int64_t seed, const char* verdict = "none") {
  const JudgedMarket market(static_cast<int32_t>(fold));
  const OptionsEnvironment environment(market.view(), {});
  Json symbols = Json::array();
  for (int32_t range = 0; range < 2; ++range)
    symbols.push_back(json_of_play(play_range(environment, range, range ? "B" : "A", [&](const OptionsState& state) {
      return state.steps % (seed + 2) == 0 ? 1 : 0;
    })));
  return {{"step", 40},
          {"digest", "d1"},
          {"kind", "cpu"},
          {"answer",
           {{"symbols", symbols},
            {"baselines", json_of_baselines(play_baselines(environment, {"A", "B"}, {.players = 5}))},
            {"rate", .03},
            {"generated", true},
            {"description", "a test's market"},
            {"volatility", {{"days", 120}, {"quoted", 0}, {"carried", 0}, {"premium", 1.1}, {"skew", -.1}}},
            {"look_ahead",
             {{"verdict", verdict},
              {"cuts", 3},
              {"days_checked", 120},
              {"decisions_exposed", 6},
              {"first_difference", Json()}}},
            {"in_sample_days", 0},
            {"same_dates_days", 0}}}};
}

// One that grew on 400 days as steadily as no chance does, at `daily` of its deviation.
JudgedRun skilled_run(double daily = .3) {
  JudgedRun run = judged_run(fake_answer(1, 1), 1, 1, "skilled");
  SymbolPlay play{.symbol = "A"};
  double value = 1e7;
  for (int32_t d = 0; d < 400; ++d) {
    play.dates.push_back(20200101 + d / 336 * 10000 + d / 28 % 12 * 100 + d % 28);
    play.equity_cents.push_back(std::llround(value));
    if (d > 0) play.actions.push_back(0);
    value *= 1 + .01 * (daily + static_cast<double>(random_normal({3, 0, 0, 1}, static_cast<uint64_t>(d))));
  }
  run.symbols = {play};
  return run;
}

std::vector<JudgedRun> fake_set() {
  std::vector<JudgedRun> runs;
  for (const int64_t seed : {2, 1, 3})
    for (const int64_t fold : {2, 1, 3}) runs.push_back(judged_run(fake_answer(fold, seed), fold, seed, "run"));
  return runs;
}

TEST(Judgement, OfOneRunIsThatOfItsSymbolsTogether) {
  const JudgedRun run = judged_run(fake_answer(1, 1), 1, 1, "one");
  const Json found = judgement_of({run}, {});
  std::vector<EquityCurve> curves;
  for (const SymbolPlay& play : run.symbols) curves.push_back(equity_curve(play));
  const EquityCurve sum = sum_of_curves(curves, "agent");
  EXPECT_EQ(found["agent"]["days"], 60);
  EXPECT_DOUBLE_EQ(found["agent"]["sharpe"], *sharpe_ratio(daily_returns(sum), .03));
  EXPECT_DOUBLE_EQ(found["deflated_sharpe"], found["probabilistic_sharpe"]);  // one try
  EXPECT_EQ(found["trials"], 1);
  EXPECT_EQ(found["baselines"].size(), 7u);
  EXPECT_EQ(found["look_ahead"]["verdict"], "none");
  EXPECT_TRUE(found["over_seeds"]["sharpe"].is_null());
}

TEST(Judgement, OfASetChainsFoldsAndAddsSeeds) {
  const Json found = judgement_of(fake_set(), {.trials = 4});
  ASSERT_EQ(found["folds"].size(), 3u);
  ASSERT_EQ(found["seeds"].size(), 3u);
  EXPECT_EQ(found["agent"]["days"], 180);
  double product = 1, hold = 1;
  std::vector<double> sharpes;
  for (const Json& fold : found["folds"]) {
    EXPECT_EQ(fold["seeds"].size(), 3u);
    product *= 1 + fold["agent"]["total_return"].get<double>();
    hold *= 1 + fold["baselines"]["buy and hold"]["total_return"].get<double>();
  }
  EXPECT_NEAR(found["agent"]["total_return"], product - 1, 1e-6);
  EXPECT_NEAR(found["baselines"][1]["total_return"], hold - 1, 1e-6);
  for (const Json& seed : found["seeds"]) sharpes.push_back(seed["sharpe"]);
  const auto over = over_seeds(sharpes);
  EXPECT_DOUBLE_EQ(found["over_seeds"]["sharpe"]["low"], over->interval.low);
  EXPECT_EQ(found["trials"], 12);
  EXPECT_LT(found["deflated_sharpe"].get<double>(), found["probabilistic_sharpe"].get<double>());
  EXPECT_EQ(found["look_ahead"]["cuts"], 27);
  EXPECT_EQ(found["equity"]["curves"].size(), 8u);
  EXPECT_EQ(found["equity"]["dates"].size(), 181u);
  EXPECT_EQ(found["equity"]["curves"][0]["values"][0], 100.0);
}

TEST(Judgement, OneRunThatSawTheFutureSpoilsTheSet) {
  std::vector<JudgedRun> runs = fake_set();
  runs[4] = judged_run(fake_answer(runs[4].fold, runs[4].seed, "found"), runs[4].fold, runs[4].seed, "bad one");
  const Json found = judgement_of(std::move(runs), {});
  EXPECT_EQ(found["look_ahead"]["verdict"], "found");
  EXPECT_EQ(found["look_ahead"]["run"], "bad one");
  EXPECT_EQ(judgement_words(found).front().find("LOOK-AHEAD FOUND"), 0u);
}

TEST(Judgement, NothingThatIsSpoiledIsCalledSignificant) {
  const auto judged = [](const auto& spoil, const JudgementPlan& plan = {}, double daily = .3) {
    JudgedRun run = skilled_run(daily);
    spoil(run);
    return judgement_of({run}, plan);
  };
  const Json good = judged([](JudgedRun&) {});
  EXPECT_EQ(good["significant"], true) << good["significance"];
  EXPECT_TRUE(good["doubts"].empty()) << good["doubts"];
  EXPECT_EQ(good["significance"].get<std::string>().find("significant Sharpe ratio: "), 0u);
  const std::pair<const char*, Json> spoiled[] = {
      {"in sample", judged([](JudgedRun& run) { run.in_sample_days = 3; })},
      {"other symbols", judged([](JudgedRun& run) { run.same_dates_days = 3; })},
      {"future changed", judged([](JudgedRun& run) { run.look_ahead["verdict"] = "found"; })},
      {"untested", judged([](JudgedRun& run) { run.look_ahead["verdict"] = "untested"; })},
      {"after 1000 tried", judged([](JudgedRun&) {}, {.trials = 1000}, .17)},
      {"too few", judged([](JudgedRun& run) {
         run.symbols[0].dates.resize(200), run.symbols[0].equity_cents.resize(200), run.symbols[0].actions.resize(199);
       })}};
  for (const auto& [why, found] : spoiled) {
    EXPECT_EQ(found["significant"], false) << why;
    ASSERT_EQ(found["doubts"].size(), 1u) << found["doubts"];
    EXPECT_NE(found["doubts"][0].get<std::string>().find(why), std::string::npos) << found["doubts"];
    EXPECT_GT(found["agent"]["sharpe_low"].get<double>(), 0) << why << ": its interval alone would claim it";
    EXPECT_EQ(found["significance"].get<std::string>().find("not significant: "), 0u) << found["significance"];
  }
  EXPECT_EQ(judgement_words(spoiled[0].second)[0].find("IN SAMPLE: 3 "), 0u);
  EXPECT_EQ(judgement_words(spoiled[1].second)[0].find("SAME DATES, OTHER SYMBOLS: "), 0u);
  EXPECT_EQ(judged([](JudgedRun&) {}, {.trials = 3})["significant"], true) << "skill that is left after three tries";
}

TEST(Judgement, SaysWhereThePricesOfOptionsCameFrom) {
  const auto judged = [](int64_t quoted, int64_t carried, bool generated = false) {
    JudgedRun run = judged_run(fake_answer(1, 1), 1, 1, "one");
    run.generated = generated, run.quoted_days = quoted, run.carried_days = carried;
    return judgement_of({run}, {});
  };
  const auto words = [](const Json& found) { return judgement_words(found)[0]; };
  EXPECT_EQ(judged(0, 0)["volatility"], "estimated");
  EXPECT_EQ(words(judged(0, 0)),
            "option prices are A MODEL'S, not quotes: Black-Scholes at a volatility ESTIMATED from returns, times 1.1, "
            "with a skew of -0.1 on all 120 days of symbols: no option was quoted");
  const Json mixed = judged(40, 5);
  EXPECT_EQ(mixed["volatility"], "mixed");
  EXPECT_EQ(mixed["quoted_days"], 40);
  EXPECT_EQ(
      words(mixed),
      "option prices are A MODEL'S, not quotes: Black-Scholes at the volatility of that day's quotes on 40 of 120 days "
      "of symbols, of the last quotes before on 5, ESTIMATED from returns, times 1.1, with a skew of -0.1 on the "
      "other 75");
  EXPECT_EQ(judged(115, 5)["volatility"], "quoted");
  EXPECT_EQ(words(judged(120, 0)).find("ESTIMATED"), std::string::npos);
  EXPECT_EQ(judged(120, 0, true)["volatility"], "generated");
}

TEST(Judgement, SaysPlainlyWhatItComesTo) {
  const Json found = judgement_of(fake_set(), {});
  const auto words = judgement_words(found);
  EXPECT_NE(words[0].find("GENERATED"), std::string::npos);
  EXPECT_NE(words[1].find("95 % interval"), std::string::npos) << words[1];
  EXPECT_EQ(found["significant"], false);  // 180 days
  EXPECT_NE(words[1].find("180 test days are too few"), std::string::npos) << words[1];
  const std::string table = judgement_table(found);
  for (const char* name :
       {"agent", "cash", "buy and hold", "covered call", "random", "rsi", "macd", "always a call", "fold 3"})
    EXPECT_NE(table.find(name), std::string::npos) << name;
}

TEST(Judgement, AnIncompleteSetAndAnotherVersionsAnswerAreRefused) {
  std::vector<JudgedRun> runs = fake_set();
  runs.pop_back();
  EXPECT_THROW(judgement_of(runs, {}), ConfigError);
  EXPECT_THROW(judgement_of({}, {}), ConfigError);
  for (const char* part : {"symbols", "baselines", "rate", "look_ahead", "in_sample_days", "volatility"}) {
    Json cut = fake_answer(1, 1);
    cut["answer"].erase(part);
    EXPECT_THROW(judged_run(cut, 1, 1, "x"), Error) << part;
  }
  Json unchecked = fake_answer(1, 1);
  unchecked["answer"]["look_ahead"]["days_checked"] = 0;
  EXPECT_THROW(judged_run(unchecked, 1, 1, "x"), Error);
}

TEST(Judgement, TradesAreListedOnceEach) {
  const JudgedRun run = judged_run(fake_answer(1, 1), 1, 1, "one");
  const std::string csv = trades_csv({run});
  EXPECT_EQ(csv.find(trade_header()), 0u);
  const auto lines = static_cast<size_t>(std::count(csv.begin(), csv.end(), '\n'));
  EXPECT_EQ(lines, 1 + run.symbols[0].trades.size() + run.symbols[1].trades.size());
  EXPECT_GT(lines, 10u);
}

}  // namespace
}  // namespace tandem
