// recipes/options.cc -- `options`: an agent that trades options on daily bars (market/options_environment.h), a
// recurrent policy with attention, learned by rl/ppo/ppo.h.
//
// It learns on the training days of its fold, from any day of any symbol on. Validation plays episodes over the fold's
// validation days, greedily; the best step is the one with the largest mean growth over them. Asked by `tandem eval`,
// it plays the test days of each symbol once, from the first to the last, and does so again with other futures.
#include <ATen/ATen.h>

#include <array>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "base/printable.h"
#include "market/baselines.h"
#include "market/look_ahead.h"
#include "recipes/makers.h"
#include "recipes/options_market.h"
#include "recipes/options_stepper.h"
#include "recipes/options_world.h"
#include "rl/ppo/policy_player.h"
#include "rl/ppo/ppo.h"

namespace tandem {
namespace {

constexpr int64_t kLeastEpisodes = 32;  // of a validation
constexpr int32_t kFutures = 16;        // that an evaluation tries

// The day, its scaled features, the portfolio and the net's output.
uint64_t hash_of_decision(const OptionsEnvironment& environment, const OptionsState& state, const at::Tensor& output) {
  uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a
  const auto add = [&](const void* bytes, size_t count) {
    for (size_t i = 0; i < count; ++i) hash = (hash ^ static_cast<const uint8_t*>(bytes)[i]) * 0x100000001B3u;
  };
  const MarketDay& day = environment.market().days[state.day];
  for (const double number : {day.open, day.high, day.low, day.close, day.volatility, day.skew, day.spread})
    add(&number, sizeof number);
  add(environment.market().features + int64_t{state.day} * kMarketFeatures, kMarketFeatures * sizeof(float));
  std::array<float, kOwnFeatures> own;
  environment.observe(reinterpret_cast<const std::byte*>(&state), own.data(), 1);
  add(own.data(), sizeof own);
  add(output.const_data_ptr<float>(), static_cast<size_t>(output.numel()) * sizeof(float));
  return hash;
}

// The episodes of a validation: range, first day, days.
class EpisodeList : public Dataset {
 public:
  explicit EpisodeList(std::vector<ValidationEpisode> episodes) : episodes_(std::move(episodes)) {}
  int64_t size() const override { return static_cast<int64_t>(episodes_.size()); }
  std::string name() const override { return "validation episodes"; }
  std::vector<DataField> fields() const override { return {{.name = "episode", .dtype = at::kInt, .shape = {3}}}; }
  void load_into(SampleWriter& out, const RandomKey&) const override {
    const ValidationEpisode& one = episodes_[static_cast<size_t>(out.sample())];
    const std::span<int32_t> to = out.write<int32_t>(0);
    to[0] = one.range, to[1] = one.first, to[2] = one.days;
  }

 private:
  std::vector<ValidationEpisode> episodes_;
};

// The world's parts live as long as the learner: the base that holds them comes first.
struct OptionsParts {
  explicit OptionsParts(const OptionsSettings& s) : world(market_of_run(s), s) {}
  OptionsWorld world;
};

class Options : private OptionsParts, public Ppo {
 public:
  explicit Options(const OptionsSettings& s)
      : OptionsParts(s),
        Ppo(s, stepped_beside_the_policy(*world.environment(world.fold().train))),
        s_(s),
        validation_(world.environment(world.fold().validation)),
        episodes_(world.validation_episodes(std::max(kLeastEpisodes, s.shards))) {}

  void build(JobState& state) override {
    Ppo::build(state);
    at::Tensor scaler = at::empty({2, kMarketFeatures}, at::kDouble);
    std::ranges::copy(world.scaler().mean, scaler.data_ptr<double>());
    std::ranges::copy(world.scaler().deviation, scaler.data_ptr<double>() + kMarketFeatures);
    scaler_ = state.add_replicated("feature_scaler", scaler);
  }

  // ---- validation ----

  std::vector<ValidationSet> validation_sets() const override {
    return {{.name = "validation", .data = &episodes_, .metrics = {{"return", true}, {"orders", true}}, .sums = 2}};
  }

  void validate(const ValidationSet&, ShardContext& context) override {
    const int64_t n = context.batch().slice.real;
    if (n == 0) return;
    const at::Tensor which = context.batch().tensors.at(0).cpu();
    std::vector<OptionsState> states;
    int32_t longest = 0;
    for (int64_t i = 0; i < n; ++i) {
      const int32_t* const one = which.data_ptr<int32_t>() + 3 * i;
      states.push_back(validation_->begin(one[0], one[1], one[2]));
      longest = std::max(longest, one[2]);
    }
    const auto bytes = reinterpret_cast<std::byte*>(states.data());
    PolicyPlayer player(net(), *validation_, s_.window, n, longest);
    std::vector<Outcome> outcomes(static_cast<size_t>(n));
    std::vector<int32_t> actions(static_cast<size_t>(n));
    for (int32_t day = 0; day < longest; ++day) {
      const at::Tensor chosen = player.act(bytes);
      for (int64_t i = 0; i < n; ++i)
        actions[static_cast<size_t>(i)] = static_cast<int32_t>(chosen.const_data_ptr<float>()[i]);
      validation_->step(bytes, actions.data(), outcomes.data(), n, {});
      context.alive();
    }
    at::Tensor gained = at::empty({n}), orders = at::empty({n});
    for (int64_t i = 0; i < n; ++i) {
      const OptionsState& end = states[static_cast<size_t>(i)];
      gained.data_ptr<float>()[i] = options::growth_percent(capital(), validation_->liquidation_cents(end));
      orders.data_ptr<float>()[i] = static_cast<float>(end.fills);
    }
    context.sum(0, gained);
    context.sum(1, orders);
  }

  std::vector<double> validation_metrics(const ValidationSet&, const ValidationTotals& totals) const override {
    const auto episodes = static_cast<double>(totals.samples);
    return {totals.sums[0] / episodes, totals.sums[1] / episodes};
  }

  // ---- what `tandem eval` and `tandem backtest` ask (apps/options/options_eval.h) ----

  std::string answer(const std::string& question, JobState&) override {
    const nlohmann::json asked = nlohmann::json::parse(question, nullptr, false);
    const std::string part = asked.is_object() ? asked.value("part", "") : "";
    if (!asked.is_object() || asked.value("ask", "") != "play" || (part != "test" && part != "all"))
      throw ConfigError("this question is not known: " + printable(question), "options can play test or all",
                        "use a tandem and a tandem-worker of the same version");
    OptionsSettings settings = s_;
    JudgedPart days{.of_fold = part == "test"};
    if (part == "all") {
      settings.data = asked.at("data").get<std::string>();
      settings.data_digest.clear();
      settings.symbols = asked.value("symbols", "");
      days.span = {.first = asked.value("from", days.span.first), .last = asked.value("to", days.span.last)};
    }
    const MarketData data = market_of_run(settings);
    const auto played = [&](const MarketData& of) { return play(of, days); };
    const std::vector<SymbolPlay> plays = played(data);
    // Days that the run learned from, or that its best step was chosen by: of its own symbols, and of others.
    int64_t in_sample = 0, same_dates = 0;
    int32_t first = world.fold().train_last;
    for (const MarketView::Range& range : world.fold().train)
      first = std::min(first, validation_->market().days[range.first].date);
    for (const SymbolPlay& one : plays) {
      if (part != "all") continue;
      const bool own = std::ranges::count(world.names(), one.symbol) > 0;
      (own ? in_sample : same_dates) += std::ranges::count_if(
          one.dates, [&](int32_t date) { return date <= world.fold().validation_last && (own || date >= first); });
    }
    nlohmann::json symbols = nlohmann::json::array();
    for (const SymbolPlay& one : plays) symbols.push_back(json_of_play(one));
    return nlohmann::json{{"symbols", symbols},
                          {"baselines", json_of_baselines(baselines(data, days))},
                          {"rate", s_.rate},
                          {"generated", data.generated},
                          {"description", data.description},
                          {"volatility", volatility_of(data, plays)},
                          {"in_sample_days", in_sample},
                          {"same_dates_days", same_dates},
                          {"look_ahead", json_of_look_ahead(find_look_ahead(data, plays, played, kFutures))}}
        .dump();
  }

 private:
  // The test days of the run's own fold, or the days of other data within a span.
  struct JudgedPart {
    bool of_fold = true;
    DateSpan span = {};
  };

  int64_t capital() const { return validation_->rules().capital_cents; }

  // On how many of the days played quotes of options gave the volatility: of that day, or of a few days before.
  nlohmann::json volatility_of(const MarketData& data, const std::vector<SymbolPlay>& plays) const {
    int64_t days = 0, quoted = 0, carried = 0;
    for (const SymbolPlay& one : plays) {
      const auto symbol = std::ranges::find(data.symbols, one.symbol, &MarketSymbol::name);
      const std::vector<int> ages = ages_of_quotes(*symbol);
      for (size_t i = 0; i < ages.size(); ++i) {
        const int32_t date = symbol->bars[i].date;
        if (date < one.dates.front() || date > one.dates.back()) continue;
        ++days;
        quoted += ages[i] == 0 ? 1 : 0;
        carried += ages[i] > 0 && ages[i] <= kStaleDays ? 1 : 0;
      }
    }
    return {{"days", days}, {"quoted", quoted}, {"carried", carried}, {"premium", s_.premium}, {"skew", s_.skew}};
  }

  // As the run was trained, for other data; the test days of its own are scaled by what they themselves have as
  // training days, so that a scaler of the future would show.
  std::unique_ptr<OptionsWorld> world_of(const MarketData& data, const JudgedPart& part) const {
    if (part.of_fold) return std::make_unique<OptionsWorld>(data, s_);
    const double* const kept = scaler_.const_data_ptr<double>();
    return std::make_unique<OptionsWorld>(
        data, s_, FeatureScaler{{kept, kept + kMarketFeatures}, {kept + kMarketFeatures, kept + 2 * kMarketFeatures}},
        part.span);
  }

  // Each symbol from its first day to its last, with its own capital, all side by side.
  std::vector<SymbolPlay> play(const MarketData& data, const JudgedPart& part) {
    const auto its = world_of(data, part);
    const std::vector<MarketView::Range>& ranges = part.of_fold ? its->fold().test : its->all_ranges();
    const auto environment = its->environment(ranges);
    std::vector<RangePlay> plays;
    int64_t longest = 0;
    for (size_t i = 0; i < ranges.size(); ++i) {
      const auto symbol = static_cast<size_t>(environment->market().days[ranges[i].first].symbol);
      plays.emplace_back(*environment, static_cast<int32_t>(i), its->names()[symbol]);
      longest = std::max<int64_t>(longest, ranges[i].last - ranges[i].first);
    }
    const auto n = static_cast<int64_t>(plays.size());
    PolicyPlayer player(net(), *environment, s_.window, n, longest);
    std::vector<OptionsState> states(plays.size());
    for (int64_t day = 0; day < longest; ++day) {
      for (size_t i = 0; i < plays.size(); ++i) states[i] = plays[i].state();
      const at::Tensor chosen = player.act(reinterpret_cast<const std::byte*>(states.data()));
      for (size_t i = 0; i < plays.size(); ++i)
        if (!plays[i].done())
          plays[i].take(static_cast<int32_t>(chosen.const_data_ptr<float>()[i]),
                        hash_of_decision(*environment, states[i], player.policy().select(0, static_cast<int64_t>(i))));
    }
    std::vector<SymbolPlay> results;
    for (RangePlay& one : plays) results.push_back(std::move(one.result()));
    return results;
  }

  Baselines baselines(const MarketData& data, const JudgedPart& part) const {
    const auto its = world_of(data, part);
    BaselinePlan plan;
    const auto training = its->environment(part.of_fold ? its->fold().train : its->all_ranges());
    if (part.of_fold && data.generated && s_.market.edge > 0) {
      plan.training = training.get();
      for (const MarketSymbol& symbol : data.symbols)
        for (const Bar& bar : symbol.bars)
          plan.directions.push_back(static_cast<int8_t>(direction_of_volume(bar.volume)));
    }
    return play_baselines(*its->environment(part.of_fold ? its->fold().test : its->all_ranges()), its->names(), plan);
  }

  const OptionsSettings& s_;
  std::unique_ptr<OptionsEnvironment> validation_;
  EpisodeList episodes_;
  at::Tensor scaler_;
};

}  // namespace

std::unique_ptr<Recipe> make_options(const OptionsSettings& settings) { return std::make_unique<Options>(settings); }

}  // namespace tandem
