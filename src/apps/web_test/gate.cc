#include "apps/web_test/gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "recipes/history_eval.h"
#include "world/scale.h"
#include "world/web_agents.h"

namespace tandem {
namespace {

std::vector<double> scores(const std::string& agent, const Evaluation& greedy) {
  const WebScale& scale = kWebScale[web_agent_of(agent)];
  std::vector<double> out;
  for (double r : greedy.returns) out.push_back(scale.score(r));
  return out;
}

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (double v : values) sum += v;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

void decide(GateLine& line, const GateLimits& limits, double unit) {
  const bool large = line.change < -limits.most_loss * unit;
  line.passed = std::isfinite(line.change) && line.high >= -limits.no_loss * unit && !large;
  if (!line.passed)
    line.note = !std::isfinite(line.change) ? "its values are no numbers"
                : large                     ? "worse by more than is allowed"
                                            : "worse beyond chance";
}

// Small steps down are caught by `first` once they add up, not before.
void decide_first(GateLine& line, double most) {
  line.passed = line.change >= -most;
  line.note = line.passed ? "" : "together with earlier steps worse by more than is allowed";
}

const char* outcome_word(const GateLine& line) {
  if (!line.judged) return line.passed || line.refuses() ? "not judged" : "not judged, a warning only";
  return line.passed ? "passed" : line.refuses() ? "failed" : "failed, a warning only";
}

GateLine not_judged(std::string name, std::string why) {
  GateLine line{std::move(name), "value"};
  line.judged = false;
  line.note = std::move(why);
  return line;
}

}  // namespace

bool GateResult::passed() const {
  return std::none_of(lines.begin(), lines.end(), [](const GateLine& line) { return line.refuses(); });
}

bool GateResult::worse() const {
  return std::any_of(lines.begin(), lines.end(), [](const GateLine& line) { return line.refuses() && line.worse(); });
}

std::string too_few_episodes(int64_t held_out) {
  return fmt::format("{} different episode{} held out, {} are needed", held_out, held_out == 1 ? " is" : "s are",
                     kFewestEpisodes);
}

GateLine compare_scores(std::string name, const std::vector<double>& before, const std::vector<double>& after) {
  GateLine line{std::move(name), "score", mean_of(before), mean_of(after)};
  const double n = static_cast<double>(before.size());
  std::vector<double> gains;
  for (size_t i = 0; i < before.size(); ++i) gains.push_back(after[i] - before[i]);
  line.change = mean_of(gains);
  double squares = 0;
  for (double g : gains) squares += (g - line.change) * (g - line.change);
  const double half = n > 1 ? kInterval * std::sqrt(squares / (n - 1) / n) : 0;
  line.low = line.change - half;
  line.high = line.change + half;
  line.episodes = static_cast<int64_t>(before.size());
  decide(line, kScoreLimits, 1);
  return line;
}

GateLine compare_on_episodes(std::string name, const LoggedEpisodes& episodes, double gamma, const QFunction& before,
                             const QFunction& after) {
  if (const int64_t n = episodes.different(); n < kFewestEpisodes)
    return not_judged(std::move(name), too_few_episodes(n));
  const LoggedEpisodes part = episodes.at_most(FittedQEvaluation::kMostRows);
  const FittedQEvaluation evaluation(part, gamma);
  const PolicyValue old = evaluation.value(greedy_on_states(before)), now = evaluation.value(greedy_on_states(after));
  if (std::isfinite(now.value) && now.known < kLeastKnown)
    return not_judged(
        std::move(name),
        fmt::format("{:.0f} % of its decisions are actions that the episodes hardly have", 100 * (1 - now.known)));
  const ValueChange change = value_change(old, now);
  GateLine line{std::move(name), "value", old.value, now.value, change.change, change.low, change.high};
  line.episodes = part.different();
  if (const int64_t all = episodes.different(); all > line.episodes) line.held_out = all;
  line.known = now.known;
  decide(line, kValueLimits, evaluation.unit());
  if (line.name == "first" && std::isfinite(line.change))
    decide_first(line, kValueLimits.most_loss * evaluation.unit());
  return line;
}

GateResult judge(const GateInput& input, const EvaluationPlan& plan) {
  const std::string& agent = input.after.agent;
  GateResult result{agent, {}};
  const double gamma = input.after.settings.value("gamma", 0.99);
  const auto add = [&](GateLine line, GateRule rule) {
    line.rule = rule;
    result.lines.push_back(std::move(line));
  };
  const auto on = [&](const char* name, const LoggedEpisodes& episodes, const TrainedAgent& before) {
    return compare_on_episodes(name, episodes, gamma, *before.net, *input.after.net);
  };
  if (input.rules.old_one != GateRule::kOff && input.simulator) {
    const std::vector<double> after = scores(agent, play_net(input.after, plan));
    add(compare_scores("old", scores(agent, play_net(input.before, plan)), after), input.rules.old_one);
    if (input.first) {
      GateLine line = compare_scores("first", scores(agent, play_net(*input.first, plan)), after);
      decide_first(line, kScoreLimits.most_loss);
      add(line, input.rules.old_one);
    }
  }
  if (input.fresh && input.rules.fresh != GateRule::kOff) {
    GateLine line = on("new", *input.fresh, input.before);
    if (!line.judged && input.learned > 0)
      line.note += fmt::format("; {} more were learned from before, whole or in part", input.learned);
    add(std::move(line), input.rules.fresh);
  }
  if (input.earlier && input.rules.old_one != GateRule::kOff) {
    std::vector<GateLine> lines = {on("old data", *input.earlier, input.before)};
    if (input.first && !input.simulator) lines.push_back(on("first", *input.earlier, *input.first));
    for (GateLine& line : lines) {
      line.passed = line.passed || !line.judged;  // nobody can bring back what is too little
      add(line, input.rules.old_one);
    }
  }
  return result;
}

nlohmann::json gate_json(const GateResult& result) {
  nlohmann::json lines = nlohmann::json::array();
  for (const GateLine& line : result.lines) {
    nlohmann::json one = {{"name", line.name},
                          {"measure", line.measure},
                          {"judged", line.judged},
                          {"passed", line.passed},
                          {"outcome", !line.judged  ? "not judged"
                                      : line.passed ? "passed"
                                                    : "worse"},
                          {"rule", word_of(line.rule)}};
    if (line.judged)
      one.update({{"old", line.before},
                  {"new", line.after},
                  {"change", line.change},
                  {"low", line.low},
                  {"high", line.high},
                  {"episodes", line.episodes}});
    if (line.judged && line.measure == "value") one.update({{"method", kOffPolicyMethod}, {"known", line.known}});
    if (line.held_out > 0) one["held_out"] = line.held_out;
    if (!line.note.empty()) one["note"] = line.note;
    lines.push_back(one);
  }
  return {{"accepted", result.passed()}, {"gates", lines}};
}

std::string gate_table(const std::vector<GateResult>& results) {
  std::string text = fmt::format("{:<14} {:<9} {:<6} {:>8} {:>8} {:>9}   {:^18}\n", "agent", "gate", "of", "old", "new",
                                 "change", "95 % interval");
  bool values = false;
  for (const GateResult& result : results)
    for (const GateLine& line : result.lines) {
      text += fmt::format("{:<14} {:<9} {:<6} ", result.agent, line.name, line.measure);
      text += line.judged ? fmt::format("{:8.3f} {:8.3f} {:+9.4f}   {:+.4f} to {:+.4f}", line.before, line.after,
                                        line.change, line.low, line.high)
                          : fmt::format("{:>8} {:>8} {:>9}   {:^18}", "-", "-", "-", "");
      text += fmt::format("   {}{}{}", outcome_word(line), line.note.empty() ? "" : ": ", line.note);
      if (line.held_out > 0) text += fmt::format(" (by {} of {} held-out episodes)", line.episodes, line.held_out);
      text += "\n";
      values = values || (line.judged && line.measure == "value");
    }
  if (values)
    text += fmt::format(
        "value: discounted return by {} on episodes held out of the experience\n"
        "       its interval is that of chance alone; what the fit smooths away makes changes look "
        "smaller\n",
        kOffPolicyMethod);
  return text;
}

}  // namespace tandem
