#include "recipes/gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "world/scale.h"
#include "world/web_agents.h"

namespace tandem {
namespace {

std::vector<double> scores(const std::string& agent, const Evaluation& played) {
  const WebScale& scale = kWebScale[web_agent_of(agent)];
  std::vector<double> out;
  for (double r : played.returns) out.push_back(scale.score(r));
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
                 const std::vector<double>& after, double unit, bool higher_is_better) {
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
  const double gain = higher_is_better ? line.change : -line.change;
  const bool large = gain < -kMostLoss * unit;
  line.passed = std::isfinite(gain) && gain + half >= -kNoLoss * unit && !large;
  if (!line.passed) line.note = large ? "worse by more than is allowed" : "worse beyond chance";
  return line;
}

std::vector<double> held_out_errors(const TrainedAgent& trained, const Experience& experience) {
  const QFunction& q = *trained.net;
  const int64_t count = q.actions(), width = q.state_size();
  const float gamma = static_cast<float>(trained.settings.value("gamma", 0.99));
  struct Judged {
    size_t segment;
    ExperienceRow row;
    const float* after;  // null: the episode is over
  };
  std::vector<Judged> all;
  std::vector<double> sums, rows;
  int64_t segment = -1;
  experience.each(true, [&](const ExperienceRow& row) {
    // A row inside a segment has its next state in the row that follows.
    if (!all.empty() && all.back().row.end == End::kNone) all.back().after = row.state;
    if (row.segment != segment) {
      segment = row.segment;
      sums.push_back(0);
      rows.push_back(0);
    }
    all.push_back({sums.size() - 1, row, row.end == End::kOver ? nullptr : row.next});
    rows.back() += 1;
  });
  constexpr size_t kAtOnce = 256;
  std::vector<float> states(2 * kAtOnce * static_cast<size_t>(width)), values(2 * kAtOnce * static_cast<size_t>(count));
  for (size_t first = 0; first < all.size(); first += kAtOnce) {
    const size_t n = std::min(kAtOnce, all.size() - first);
    for (size_t i = 0; i < n; ++i) {
      const Judged& one = all[first + i];
      std::copy_n(one.row.state, width, states.begin() + static_cast<int64_t>(i) * width);
      std::copy_n(one.after ? one.after : one.row.state, width, states.begin() + static_cast<int64_t>(n + i) * width);
    }
    q.q_values(states.data(), static_cast<int64_t>(2 * n), values.data());
    for (size_t i = 0; i < n; ++i) {
      const Judged& one = all[first + i];
      const float *own = values.data() + static_cast<int64_t>(i) * count,
                  *next = values.data() + static_cast<int64_t>(n + i) * count;
      const float goal = one.row.reward + (one.after ? gamma * next[best_action(next, count)] : 0.0f);
      sums[one.segment] += std::abs(goal - own[one.row.action]);
    }
  }
  for (size_t i = 0; i < sums.size(); ++i) sums[i] /= rows[i];
  return sums;
}

GateResult judge(const GateInput& input, const EvaluationPlan& plan) {
  const std::string& agent = input.after.agent;
  GateResult result{agent, {}};
  const std::vector<double> after = scores(agent, play_net(input.after, plan));
  const auto played = [&](const TrainedAgent& trained) { return scores(agent, play_net(trained, plan)); };
  result.lines.push_back(compare("old", "score", played(input.before), after, 1, true));
  if (input.first) {
    GateLine line = compare("first", "score", played(*input.first), after, 1, true);
    line.passed = line.change >= -kMostLoss;  // small steps down are caught here once they add up, not before
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
    result.lines.push_back(
        compare(name, "error", before, held_out_errors(input.after, experience), mean_of(before), false));
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
