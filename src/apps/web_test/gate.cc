#include "apps/web_test/gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

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

}  // namespace

bool GateResult::passed() const {
  return std::all_of(lines.begin(), lines.end(), [](const GateLine& line) { return line.passed; });
}

GateLine compare(std::string name, std::string measure, const std::vector<double>& before,
                 const std::vector<double>& after) {
  GateLine line{std::move(name), std::move(measure), mean_of(before), mean_of(after)};
  const double n = static_cast<double>(before.size());
  std::vector<double> gains;
  for (size_t i = 0; i < before.size(); ++i) gains.push_back(after[i] - before[i]);
  line.change = mean_of(gains);
  double squares = 0;
  for (double g : gains) squares += (g - line.change) * (g - line.change);
  const double half = n > 1 ? kInterval * std::sqrt(squares / (n - 1) / n) : 0;
  line.low = line.change - half;
  line.high = line.change + half;
  const bool score = line.measure == "score";
  const GateLimits& limits = score ? kScoreLimits : kErrorLimits;
  const double gain = score ? line.change : -line.change, unit = score ? 1 : line.before;
  const bool large = gain < -limits.most_loss * unit;
  line.passed = std::isfinite(gain) && gain + half >= -limits.no_loss * unit && !large;
  if (!line.passed) line.note = large ? "worse by more than is allowed" : "worse beyond chance";
  return line;
}

std::vector<double> held_out_errors(const TrainedAgent& trained, const Experience& experience) {
  const QFunction& q = *trained.net;
  const int64_t count = q.actions(), width = q.state_size();
  const double gamma = trained.settings.value("gamma", 0.99);
  std::vector<ExperienceRow> rows;
  experience.each(true, [&](const ExperienceRow& row) { rows.push_back(row); });
  const size_t n = rows.size();
  if (n == 0) return {};
  std::vector<double> came(n, 0), foretold(n);
  for (size_t i = 0; i < n; ++i) {
    double worth = 1;
    for (size_t k = i; k < n && k < i + kGateHorizon && rows[k].segment == rows[i].segment; ++k, worth *= gamma)
      came[i] += worth * rows[k].reward;
  }
  constexpr size_t kAtOnce = 256;
  std::vector<float> states(kAtOnce * static_cast<size_t>(width)), values(kAtOnce * static_cast<size_t>(count));
  for (size_t first = 0; first < n; first += kAtOnce) {
    const size_t some = std::min(kAtOnce, n - first);
    for (size_t i = 0; i < some; ++i)
      std::copy_n(rows[first + i].state, width, states.begin() + static_cast<int64_t>(i) * width);
    q.q_values(states.data(), static_cast<int64_t>(some), values.data());
    for (size_t i = 0; i < some; ++i)
      foretold[first + i] = values[i * static_cast<size_t>(count) + static_cast<size_t>(rows[first + i].action)];
  }
  // The best straight line from one to the other; values that run the wrong way foretell nothing.
  const double mean_q = mean_of(foretold), mean_came = mean_of(came);
  double both = 0, own = 0;
  for (size_t i = 0; i < n; ++i) {
    both += (foretold[i] - mean_q) * (came[i] - mean_came);
    own += (foretold[i] - mean_q) * (foretold[i] - mean_q);
  }
  const double slope = own > 0 ? std::max(0.0, both / own) : 0;
  std::vector<double> sums, counts;
  for (size_t i = 0; i < n; ++i) {
    if (i == 0 || rows[i].segment != rows[i - 1].segment) {
      sums.push_back(0);
      counts.push_back(0);
    }
    sums.back() += std::abs(came[i] - mean_came - slope * (foretold[i] - mean_q));
    counts.back() += 1;
  }
  for (size_t s = 0; s < sums.size(); ++s) sums[s] /= counts[s];
  return sums;
}

GateResult judge(const GateInput& input, const EvaluationPlan& plan) {
  const std::string& agent = input.after.agent;
  GateResult result{agent, {}};
  const std::vector<double> after = scores(agent, play_net(input.after, plan));
  const auto greedy = [&](const TrainedAgent& trained) { return scores(agent, play_net(trained, plan)); };
  result.lines.push_back(compare("old", "score", greedy(input.before), after));
  if (input.first) {
    GateLine line = compare("first", "score", greedy(*input.first), after);
    line.passed =
        line.change >= -kScoreLimits.most_loss;  // small steps down are caught here once they add up, not before
    line.note = line.passed ? "" : "together with earlier steps worse by more than is allowed";
    result.lines.push_back(line);
  }
  const auto on_data = [&](const char* name, const Experience& experience, bool must) {
    const std::vector<double> before = held_out_errors(input.before, experience);
    if (static_cast<int64_t>(before.size()) < kFewestSegments) {
      GateLine line{name, "error"};
      line.judged = false;
      line.passed = !must;
      line.note = fmt::format("{} segments kept apart, {} are needed", before.size(), kFewestSegments);
      result.lines.push_back(line);
      return;
    }
    result.lines.push_back(compare(name, "error", before, held_out_errors(input.after, experience)));
  };
  if (input.fresh) on_data("new", *input.fresh, true);
  if (input.old_experience) on_data("old data", *input.old_experience, false);
  return result;
}

nlohmann::json gate_json(const GateResult& result) {
  nlohmann::json lines = nlohmann::json::array();
  for (const GateLine& line : result.lines) {
    nlohmann::json one = {
        {"name", line.name}, {"measure", line.measure}, {"judged", line.judged}, {"passed", line.passed}};
    if (line.judged)
      one.update(
          {{"old", line.before}, {"new", line.after}, {"change", line.change}, {"low", line.low}, {"high", line.high}});
    if (!line.note.empty()) one["note"] = line.note;
    lines.push_back(one);
  }
  return {{"accepted", result.passed()}, {"gates", lines}};
}

std::string gate_table(const std::vector<GateResult>& results) {
  std::string text = fmt::format("{:<14} {:<9} {:<6} {:>8} {:>8} {:>9}   {:^18}\n", "agent", "gate", "of", "old", "new",
                                 "change", "95 % interval");
  for (const GateResult& result : results)
    for (const GateLine& line : result.lines) {
      text += fmt::format("{:<14} {:<9} {:<6} ", result.agent, line.name, line.measure);
      text += line.judged ? fmt::format("{:8.3f} {:8.3f} {:+9.4f}   {:+.4f} to {:+.4f}", line.before, line.after,
                                        line.change, line.low, line.high)
                          : fmt::format("{:>8} {:>8} {:>9}   {:^18}", "-", "-", "-", "");
      text += fmt::format("   {}{}{}\n", line.passed ? "passed" : "failed", line.note.empty() ? "" : ": ", line.note);
    }
  return text;
}

}  // namespace tandem
