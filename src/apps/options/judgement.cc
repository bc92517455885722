#include "apps/options/judgement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/errors.h"
#include "market/sharpe.h"

namespace tandem {
namespace {

using Json = nlohmann::json;
constexpr int64_t kLeastDaysOfClaim = 250;  // a year
constexpr double kSkillBar = .95;           // of a deflated Sharpe ratio
constexpr size_t kMostPoints = 300;         // of a curve on the page

Json number_or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

// One strategy over the test days: a curve with its trades. Turnover is by fold, because later folds are scaled.
struct StrategyResult {
  std::vector<EquityCurve> curves;
  std::vector<ClosedTrade> trades;
  double traded = 0;
  int64_t days = 0;

  void add(EquityCurve curve, const std::vector<ClosedTrade>& more, double rate) {
    const Performance fold = performance_of(curve, rate, &more);
    traded += *fold.turnover * static_cast<double>(fold.days);
    days += fold.days;
    trades.insert(trades.end(), more.begin(), more.end());
    curves.push_back(std::move(curve));
  }
  EquityCurve whole(const std::string& name) const { return chained_curves(curves, name); }
  Performance figures(const EquityCurve& curve, double rate) const {
    Performance out = performance_of(curve, rate, &trades);
    out.turnover = traded / static_cast<double>(days);
    return out;
  }
};

EquityCurve sum_of_symbols(const JudgedRun& run, std::vector<ClosedTrade>& trades) {
  std::vector<EquityCurve> curves;
  for (const SymbolPlay& play : run.symbols) {
    curves.push_back(equity_curve(play));
    const auto more = closed_trades(play);
    trades.insert(trades.end(), more.begin(), more.end());
  }
  return sum_of_curves(curves, "agent");
}

using RunsOfFold = std::map<int64_t, std::vector<const JudgedRun*>>;  // by fold, seeds in order

RunsOfFold by_fold(const std::vector<JudgedRun>& runs) {
  if (runs.empty()) throw ConfigError("there is nothing to judge", "no run answered", "name a run with a checkpoint");
  RunsOfFold folds;
  std::map<int64_t, std::set<int64_t>> seeds;
  for (const JudgedRun& run : runs) folds[run.fold].push_back(&run), seeds[run.fold].insert(run.seed);
  for (const auto& [fold, of_fold] : seeds)
    if (of_fold != seeds.begin()->second || of_fold.size() != folds[fold].size())
      throw ConfigError(fmt::format("fold {} has other seeds than fold {}", fold, seeds.begin()->first),
                        "a seed's result is the sum of all its test periods", "let the set train to its end first");
  return folds;
}

Json look_ahead_of(const std::vector<JudgedRun>& runs) {
  Json out = {
      {"verdict", "none"}, {"cuts", 0}, {"days_checked", 0}, {"decisions_exposed", 0}, {"first_difference", Json()}};
  for (const JudgedRun& run : runs) {
    for (const char* key : {"cuts", "days_checked", "decisions_exposed"})
      out[key] = out[key].get<int64_t>() + run.look_ahead.at(key).get<int64_t>();
    if (run.look_ahead.at("verdict") == "none" || out["verdict"] == "found") continue;
    out["verdict"] = run.look_ahead.at("verdict");
    out["first_difference"] = run.look_ahead.value("first_difference", Json());
    out["run"] = run.run;
  }
  return out;
}

Json over_seeds_json(const std::vector<double>& values) {
  const auto found = over_seeds(values);
  if (!found) return Json();
  return {{"mean", found->mean}, {"low", found->interval.low}, {"high", found->interval.high}, {"seeds", found->seeds}};
}

Json fold_json(int64_t number, const std::vector<const JudgedRun*>& runs, const JudgementPlan& plan) {
  const double rate = runs.front()->rate;
  Json seeds = Json::array(), lines = Json::object();
  std::vector<EquityCurve> curves;
  std::vector<ClosedTrade> trades;
  std::vector<double> sharpes;
  for (const JudgedRun* run : runs) {
    std::vector<ClosedTrade> own;
    curves.push_back(sum_of_symbols(*run, own));
    const Performance p = performance_of(curves.back(), rate, &own);
    seeds.push_back({{"seed", run->seed}, {"run", run->run}, {"step", run->step}, {"digest", run->digest}});
    seeds.back().update(json_of_performance(p));
    if (p.sharpe) sharpes.push_back(*p.sharpe);
    trades.insert(trades.end(), own.begin(), own.end());
  }
  const EquityCurve agent = sum_of_curves(curves, "agent");
  for (const Baseline& one : runs.front()->baselines.list)
    lines[one.name] = json_of_performance(performance_of(one.curve, rate, &one.trades));
  const Performance p = performance_of(agent, rate, &trades);
  Json out = {{"fold", number},
              {"first", p.first},
              {"last", p.last},
              {"symbols", runs.front()->symbols.size()},
              {"seeds", std::move(seeds)},
              {"agent", json_of_performance(p)},
              {"baselines", std::move(lines)},
              {"over_seeds", {{"sharpe", over_seeds_json(sharpes)}}}};
  const auto interval = sharpe_interval(daily_returns(agent), rate, {.seed = plan.seed});
  out["agent"]["sharpe_low"] = interval ? Json(interval->low) : Json();
  out["agent"]["sharpe_high"] = interval ? Json(interval->high) : Json();
  return out;
}

// Each seed over all folds.
Json seeds_json(const RunsOfFold& folds, std::vector<double>& daily_ratios, Json& over) {
  std::map<int64_t, StrategyResult> by_seed;
  const double rate = folds.begin()->second.front()->rate;
  for (const auto& [fold, runs] : folds)
    for (const JudgedRun* run : runs) {
      std::vector<ClosedTrade> trades;
      EquityCurve curve = sum_of_symbols(*run, trades);
      by_seed[run->seed].add(std::move(curve), trades, rate);
    }
  Json out = Json::array();
  std::vector<double> sharpes, returns;
  for (const auto& [seed, result] : by_seed) {
    const EquityCurve curve = result.whole(fmt::format("seed {}", seed));
    const Performance p = result.figures(curve, rate);
    out.push_back({{"seed", seed}});
    out.back().update(json_of_performance(p));
    returns.push_back(p.total_return);
    if (p.sharpe) sharpes.push_back(*p.sharpe);
    if (const auto daily = daily_sharpe(daily_returns(curve), rate)) daily_ratios.push_back(daily->ratio);
  }
  over = {{"sharpe", over_seeds_json(sharpes)}, {"total_return", over_seeds_json(returns)}};
  return out;
}

Json equity_json(const std::vector<EquityCurve>& curves) {
  const std::vector<int32_t>& dates = curves.front().dates;
  const size_t every = std::max<size_t>(1, (dates.size() + kMostPoints - 1) / kMostPoints);
  std::vector<size_t> places;
  for (size_t i = 0; i + 1 < dates.size(); i += every) places.push_back(i);
  places.push_back(dates.size() - 1);
  Json out = {{"dates", Json::array()}, {"curves", Json::array()}};
  for (const size_t i : places) out["dates"].push_back(dates[i]);
  for (const EquityCurve& curve : curves) {
    if (curve.dates != dates) continue;
    Json values = Json::array();
    for (const size_t i : places)  // 100 at the beginning, to a hundredth
      values.push_back(
          std::round(1e4 * static_cast<double>(curve.cents[i]) / static_cast<double>(curve.cents.front())) / 100);
    out["curves"].push_back({{"name", curve.name}, {"values", std::move(values)}});
  }
  return out;
}

double share_below(const std::vector<double>& sorted, double value) {
  if (sorted.empty()) return 0;
  return static_cast<double>(std::lower_bound(sorted.begin(), sorted.end(), value) - sorted.begin()) /
         static_cast<double>(sorted.size());
}

std::optional<double> variance_of(const std::vector<double>& values) {
  const auto found = over_seeds(values);
  return found ? std::optional(found->deviation * found->deviation) : std::nullopt;
}

// Why a Sharpe ratio is not called significant, whatever its interval.
std::vector<std::string> doubts_of(const Json& judgement, size_t days) {
  std::vector<std::string> doubts;
  const std::string verdict = judgement.at("look_ahead").at("verdict");
  if (verdict == "found") doubts.emplace_back("the future changed what was done before it");
  if (verdict == "untested") doubts.emplace_back("no other future changed anything, so look-ahead is untested");
  if (const int64_t seen = judgement.at("in_sample_days"); seen > 0)
    doubts.push_back(fmt::format("{} days of symbols are in sample", seen));
  if (const int64_t seen = judgement.at("same_dates_days"); seen > 0)
    doubts.push_back(fmt::format("{} days of symbols are dates that the run learned other symbols on", seen));
  // Days of a few months are too few for the interval's own tails: they show nothing either way.
  if (static_cast<int64_t>(days) < kLeastDaysOfClaim)
    doubts.push_back(fmt::format("{} test days are too few, {} are needed", days, kLeastDaysOfClaim));
  const int64_t trials = judgement.at("trials");
  const Json& deflated = judgement.at("deflated_sharpe");
  if (trials > 1 && !(deflated.is_number() && deflated.get<double>() >= kSkillBar))
    doubts.push_back(deflated.is_number()
                         ? fmt::format("after {} tried, the deflated Sharpe ratio is {:.3f}, below {:g}", trials,
                                       deflated.get<double>(), kSkillBar)
                         : fmt::format("{} were tried, and there is no deflated Sharpe ratio", trials));
  return doubts;
}

// Interval, what is left of the ratio after the tries, and significance; into the agent's figures and beside them.
void add_belief(Json& out, const EquityCurve& agent, double rate, int64_t trials, const std::vector<double>& ratios,
                const JudgementPlan& plan) {
  const std::vector<double> returns = daily_returns(agent);
  const auto interval = sharpe_interval(returns, rate, {.seed = plan.seed});
  out["agent"]["sharpe_low"] = interval ? Json(interval->low) : Json();
  out["agent"]["sharpe_high"] = interval ? Json(interval->high) : Json();
  out["trials"] = trials;
  const auto daily = daily_sharpe(returns, rate);
  // Seeds of one recipe are alike: chance alone is the least that their ratios may differ by.
  std::optional<double> variance = variance_of(ratios);
  if (variance && daily) variance = std::max(*variance, 1 / static_cast<double>(std::max<int64_t>(daily->days - 1, 1)));
  out["probabilistic_sharpe"] = daily ? number_or_null(probabilistic_sharpe(*daily, 0)) : Json();
  out["deflated_sharpe"] = daily ? number_or_null(deflated_sharpe(*daily, trials, variance)) : Json();
  const auto doubts = doubts_of(out, returns.size());
  const auto ratio = sharpe_ratio(returns, rate);
  out["doubts"] = doubts;
  out["significant"] = doubts.empty() && interval && interval->low > 0;
  out["significance"] =
      doubts.empty() || !ratio || !interval
          ? significance_in_words(ratio, interval)
          : fmt::format("not significant: Sharpe ratio {:.2f}, its 95 % interval {:.2f} to {:.2f}; {}", *ratio,
                        interval->low, interval->high, fmt::join(doubts, "; "));
}

// Where the prices of options came from. All seeds of a fold trade the same days.
void add_pricing(Json& out, const RunsOfFold& folds) {
  const JudgedRun& first = *folds.begin()->second.front();
  int64_t days = 0, quoted = 0, carried = 0;
  for (const auto& [fold, runs] : folds)
    days += runs.front()->priced_days, quoted += runs.front()->quoted_days, carried += runs.front()->carried_days;
  out["volatility"] = first.generated            ? "generated"
                      : quoted + carried == days ? "quoted"
                      : quoted + carried == 0    ? "estimated"
                                                 : "mixed";
  out["priced_days"] = days, out["quoted_days"] = quoted, out["carried_days"] = carried;
  out["premium"] = first.premium, out["skew"] = first.skew;
  out["description"] = first.description;
}

std::string pricing_words(const Json& judgement) {
  const std::string from = judgement.at("volatility");
  if (from == "generated") return "these prices are GENERATED: the figures say nothing about any real market";
  const int64_t days = judgement.at("priced_days"), quoted = judgement.at("quoted_days"),
                carried = judgement.at("carried_days");
  const std::string estimated = fmt::format("ESTIMATED from returns, times {:g}, with a skew of {:g}",
                                            judgement.at("premium").get<double>(), judgement.at("skew").get<double>());
  std::string at = fmt::format("a volatility {} on all {} days of symbols: no option was quoted", estimated, days);
  if (from != "estimated")
    at = fmt::format("the volatility of that day's quotes on {} of {} days of symbols", quoted, days) +
         (carried > 0 ? fmt::format(", of the last quotes before on {}", carried) : "") +
         (from == "mixed" ? fmt::format(", {} on the other {}", estimated, days - quoted - carried) : "");
  return "option prices are A MODEL'S, not quotes: Black-Scholes at " + at;
}

std::string cell(const Json& value, const char* format, double scale = 1) {
  return value.is_number() ? fmt::format(fmt::runtime(format), scale * value.get<double>()) : "-";
}

std::string table_row(const std::string& name, const Json& p) {
  return fmt::format("{:<24} {:>9} {:>9} {:>8} {:>7} {:>8} {:>9} {:>7} {:>8} {:>7} {:>9} {:>8}\n", name,
                     cell(p["total_return"], "{:.2f} %", 100), cell(p["annual_return"], "{:.2f} %", 100),
                     cell(p["volatility"], "{:.1f} %", 100), cell(p["sharpe"], "{:.2f}"), cell(p["sortino"], "{:.2f}"),
                     cell(p["drawdown"]["depth"], "{:.2f} %", 100), cell(p["calmar"], "{:.2f}"),
                     cell(p["cvar95"], "{:.2f} %", 100), cell(p["hit_trades"], "{:.0f} %", 100),
                     cell(p["turnover"], "{:.1f}"), cell(p["exposure"], "{:.0f} %", 100));
}

}  // namespace

JudgedRun judged_run(const Json& answered, int64_t fold, int64_t seed, const std::string& run) {
  try {
    const Json& answer = answered.at("answer");
    JudgedRun out{.fold = fold, .seed = seed, .step = answered.at("step"), .run = run, .digest = answered.at("digest")};
    for (const Json& symbol : answer.at("symbols")) out.symbols.push_back(play_of_json(symbol));
    out.baselines = baselines_of_json(answer.at("baselines"));
    out.rate = answer.at("rate");
    out.generated = answer.at("generated");
    out.description = answer.at("description");
    const Json& volatility = answer.at("volatility");
    out.priced_days = volatility.at("days");
    out.quoted_days = volatility.at("quoted");
    out.carried_days = volatility.at("carried");
    out.premium = volatility.at("premium");
    out.skew = volatility.at("skew");
    out.in_sample_days = answer.at("in_sample_days");
    out.same_dates_days = answer.at("same_dates_days");
    out.look_ahead = answer.at("look_ahead");
    const std::string verdict = out.look_ahead.at("verdict");
    const bool checked = out.look_ahead.at("days_checked").get<int64_t>() > 0 && out.look_ahead.at("cuts") > 0;
    if (out.symbols.empty()) throw std::invalid_argument("no symbol");
    if ((verdict != "none" && verdict != "found" && verdict != "untested") || !checked)
      throw std::invalid_argument("a look-ahead test that checked nothing");
    return out;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(ExitCode::kFailed, fmt::format("the worker's answer about {} cannot be read", run), error.what(),
                "use a tandem and a tandem-worker of the same version");
  }
}

Json json_of_performance(const Performance& p) {
  return {{"days", p.days},
          {"first", p.first},
          {"last", p.last},
          {"total_return", p.total_return},
          {"annual_return", number_or_null(p.annual_return)},
          {"volatility", p.volatility},
          {"sharpe", number_or_null(p.sharpe)},
          {"sortino", number_or_null(p.sortino)},
          {"calmar", number_or_null(p.calmar)},
          {"drawdown",
           {{"depth", p.drawdown.depth},
            {"peak", p.drawdown.peak},
            {"trough", p.drawdown.trough},
            {"recovered", p.drawdown.recovered}}},
          {"cvar95", number_or_null(p.cvar95)},
          {"hit_days", number_or_null(p.hit_days)},
          {"hit_trades", number_or_null(p.hit_trades)},
          {"closed_trades", p.closed_trades},
          {"open_trades", p.open_trades},
          {"exposure", number_or_null(p.exposure)},
          {"turnover", number_or_null(p.turnover)},
          {"skew", p.skew},
          {"kurtosis", p.kurtosis}};
}

Json judgement_of(std::vector<JudgedRun> runs, const JudgementPlan& plan) {
  std::sort(runs.begin(), runs.end(), [](const JudgedRun& a, const JudgedRun& b) {
    return std::pair(a.fold, a.seed) < std::pair(b.fold, b.seed);
  });
  const RunsOfFold folds = by_fold(runs);
  const double rate = runs.front().rate;
  Json out = {{"rate", rate}, {"generated", runs.front().generated}, {"look_ahead", look_ahead_of(runs)}};
  int64_t in_sample = 0, same_dates = 0;
  for (const JudgedRun& run : runs) in_sample += run.in_sample_days, same_dates += run.same_dates_days;
  out["in_sample_days"] = in_sample;
  out["same_dates_days"] = same_dates;
  add_pricing(out, folds);
  StrategyResult agent;
  std::vector<StrategyResult> lines(runs.front().baselines.list.size());
  double beaten = 0;
  for (const auto& [number, of_fold] : folds) {
    out["folds"].push_back(fold_json(number, of_fold, plan));
    std::vector<EquityCurve> curves;
    std::vector<ClosedTrade> trades;
    for (const JudgedRun* run : of_fold) curves.push_back(sum_of_symbols(*run, trades));
    const EquityCurve sum = sum_of_curves(curves, "agent");
    const double gained = static_cast<double>(sum.cents.back()) / static_cast<double>(sum.cents.front()) - 1;
    beaten += share_below(of_fold.front()->baselines.random_returns, gained) / static_cast<double>(folds.size());
    agent.add(sum, trades, rate);
    const auto& list = of_fold.front()->baselines.list;
    for (size_t i = 0; i < lines.size() && i < list.size(); ++i) lines[i].add(list[i].curve, list[i].trades, rate);
  }
  std::vector<EquityCurve> shown{agent.whole("agent")};
  out["agent"] = json_of_performance(agent.figures(shown[0], rate));
  out["random_beaten"] = beaten;
  std::vector<double> ratios;
  out["seeds"] = seeds_json(folds, ratios, out["over_seeds"]);
  const auto seeds = static_cast<int64_t>(folds.begin()->second.size());
  add_belief(out, shown[0], rate, plan.trials * seeds, ratios, plan);
  for (size_t i = 0; i < lines.size(); ++i) {
    const Baseline& one = runs.front().baselines.list[i];
    shown.push_back(lines[i].whole(one.name));
    Json line = {{"name", one.name}, {"what", one.what}, {"notes", one.notes}};
    line.update(json_of_performance(lines[i].figures(shown.back(), rate)));
    out["baselines"].push_back(std::move(line));
  }
  out["equity"] = equity_json(shown);
  return out;
}

std::string judgement_table(const Json& judgement) {
  std::string text = fmt::format("{:<24} {:>9} {:>9} {:>8} {:>7} {:>8} {:>9} {:>7} {:>8} {:>7} {:>9} {:>8}\n",
                                 "strategy", "return", "a year", "vol.", "Sharpe", "Sortino", "drawdown", "Calmar",
                                 "CVaR 95", "hits", "turnover", "exposed");
  text += table_row("agent", judgement.at("agent"));
  for (const Json& line : judgement.at("baselines")) text += table_row(line.at("name"), line);
  if (judgement.at("folds").size() < 2) return text;
  for (const Json& fold : judgement.at("folds"))
    text +=
        table_row(fmt::format("  fold {}, from {}", fold.at("fold").get<int64_t>(), fold.at("first").get<int64_t>()),
                  fold.at("agent"));
  return text;
}

std::vector<std::string> judgement_words(const Json& judgement) {
  std::vector<std::string> words;
  const Json& ahead = judgement.at("look_ahead");
  if (ahead.at("verdict") == "found")
    words.push_back("LOOK-AHEAD FOUND: other prices in the future changed an action before them: " +
                    ahead.at("first_difference").dump() + "; no figure below can be trusted");
  if (const int64_t days = judgement.at("in_sample_days"); days > 0)
    words.push_back(
        fmt::format("IN SAMPLE: {} of these days of symbols are days that the run learned from or was chosen by; the "
                    "figures say nothing about days that it never saw",
                    days));
  if (const int64_t days = judgement.at("same_dates_days"); days > 0)
    words.push_back(
        fmt::format("SAME DATES, OTHER SYMBOLS: the run learned from, or was chosen by, other symbols on the dates of "
                    "{} of these days; prices move together, so these are not new days either",
                    days));
  words.push_back(pricing_words(judgement));
  words.push_back(judgement.at("significance").get<std::string>());
  if (judgement.at("deflated_sharpe").is_number())
    words.push_back(
        fmt::format("deflated Sharpe ratio {:.3f}: the probability of skill after {} tried; {:g} is the usual bar",
                    judgement.at("deflated_sharpe").get<double>(), judgement.at("trials").get<int64_t>(), kSkillBar));
  if (const Json& sharpe = judgement.at("over_seeds").at("sharpe"); sharpe.is_object())
    words.push_back(fmt::format("over {} seeds the Sharpe ratio is {:.2f}, 95 % interval {:.2f} to {:.2f}",
                                sharpe.at("seeds").get<int64_t>(), sharpe.at("mean").get<double>(),
                                sharpe.at("low").get<double>(), sharpe.at("high").get<double>()));
  words.push_back(
      fmt::format("better than {:.0f} % of the random players", 100 * judgement.at("random_beaten").get<double>()));
  if (ahead.at("verdict") == "none")
    words.push_back(fmt::format("look-ahead: none found ({} futures changed, {} decisions at a changed day)",
                                ahead.at("cuts").get<int64_t>(), ahead.at("decisions_exposed").get<int64_t>()));
  if (ahead.at("verdict") == "untested")
    words.push_back("look-ahead: UNTESTED, no other future changed anything that the agent did or saw");
  return words;
}

std::string trades_csv(const std::vector<JudgedRun>& runs) {
  std::string text = trade_header() + "\n";
  for (const JudgedRun& run : runs)
    for (const SymbolPlay& play : run.symbols)
      for (const OptionTrade& trade : play.trades) text += trade_line(trade, play.symbol) + "\n";
  return text;
}

}  // namespace tandem
