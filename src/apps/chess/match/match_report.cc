#include "apps/chess/match/match_report.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/printable.h"

namespace tandem::chess {
namespace {

using Json = nlohmann::json;

std::string points_text(double points) {
  return points == std::floor(points) ? fmt::format("{:.0f}", points) : fmt::format("{:.1f}", points);
}

double points_of(const MatchScore& s) { return static_cast<double>(s.wins) + static_cast<double>(s.draws) / 2; }

// An interval of Elo as people read it; an end that nothing bounds is left out.
std::string elo_text(double low, double high) {
  if (std::isinf(low) && std::isinf(high)) return "unknown";
  if (std::isinf(high)) return fmt::format("more than {:+.0f}", low);
  if (std::isinf(low)) return fmt::format("less than {:+.0f}", high);
  return fmt::format("{:+.0f} .. {:+.0f}", low, high);
}

// The value too, where it is a number.
std::string elo_text(double value, double low, double high) {
  if (std::isinf(value))
    return value > 0 ? fmt::format("more than {:+.0f}", low) : fmt::format("less than {:+.0f}", high);
  return fmt::format("{:+.0f} ({})", value, elo_text(low, high));
}

struct EloEstimate {
  double value, low, high;
};
EloEstimate elo_of(const MeanEstimate& estimate) {
  const ScoreInterval interval = estimate.interval();
  return {elo_of_score(estimate.mean), elo_of_score(interval.low), elo_of_score(interval.high)};
}

Json finite(double value) { return std::isfinite(value) ? Json(value) : Json(); }
Json elo_json(const EloEstimate& elo) {
  return {{"value", finite(elo.value)}, {"low", finite(elo.low)}, {"high", finite(elo.high)}};
}

// A side's place on the scale on which the other one's is known.
struct Anchored {
  std::string name, by;
  double anchor;
  EloEstimate elo;
  bool promised = true;  // by the other one itself
};
std::vector<Anchored> anchored(const MatchReport& report, const EloEstimate& difference) {
  std::vector<Anchored> found;
  if (const auto known = report.second.promised_elo ? report.second.promised_elo : report.anchor)
    found.push_back({report.first.name,
                     report.second.name,
                     *known,
                     {*known + difference.value, *known + difference.low, *known + difference.high},
                     report.second.promised_elo.has_value()});
  if (const auto promised = report.first.promised_elo)
    found.push_back({report.second.name,
                     report.first.name,
                     *promised,
                     {*promised - difference.value, *promised - difference.high, *promised - difference.low}});
  return found;
}

std::string absolute_elo_text(const EloEstimate& elo) {
  if (std::isinf(elo.value))
    return elo.value > 0 ? fmt::format("above {:.0f}", elo.low) : fmt::format("below {:.0f}", elo.high);
  return fmt::format("{:.0f} ({:.0f} .. {:.0f})", elo.value, elo.low, elo.high);
}

std::string share_text(const char* what, int64_t of_these, int64_t of_all) {
  const ScoreInterval interval = share_interval(of_these, of_all);
  return fmt::format("{:<8}{:>6}   {:5.1f} %  ({:.1f} .. {:.1f})\n", what, of_these,
                     100.0 * static_cast<double>(of_these) / static_cast<double>(of_all), 100 * interval.low,
                     100 * interval.high);
}

std::string elo_lines(const MatchReport& report) {
  const auto estimate = estimate_pairs(report.score);
  if (!estimate) return "Elo     no pair of games is complete, so nothing can be said of the difference\n";
  const EloEstimate difference = elo_of(*estimate);
  const ScoreInterval interval = estimate->interval();
  std::string text = fmt::format(
      "score         {:8.1f} %  ({:.1f} .. {:.1f}), by {} pairs: {} x 2, {} x 1 1/2, {} x 1, {} x 1/2, {} x 0\n",
      100 * estimate->mean, 100 * interval.low, 100 * interval.high, estimate->count, report.score.pairs[4],
      report.score.pairs[3], report.score.pairs[2], report.score.pairs[1], report.score.pairs[0]);
  text += fmt::format("Elo     {} against {}; {} is the stronger one with a likelihood of {:.1f} %\n",
                      elo_text(difference.value, difference.low, difference.high), printable(report.second.name),
                      printable(report.first.name), 100 * estimate->above_half());
  const std::vector<Anchored> scale = anchored(report, difference);
  for (const Anchored& side : scale)
    text += fmt::format("scale   {}: {}, where {} is {:.0f} as {}\n", printable(side.name), absolute_elo_text(side.elo),
                        printable(side.by), side.anchor, side.promised ? "it promises" : "--anchor has it");
  if (scale.empty())
    text += "scale   no anchor: neither side is Stockfish with an Elo, and there is no --anchor: a difference alone\n";
  return text;
}

std::string ending_of(const FinishedGame& game) {
  if (game.fault) return "fault of a player";
  if (game.flag) return "time";
  return game.too_long ? "too long" : std::string(word_of(game.result.end));
}

std::string times_text(const std::string& name, const MoveTimes& times) {
  std::string text =
      fmt::format("{} {:.1f} ms a move, at most {:.1f}", printable(name), times.mean_ms(), times.largest_ms());
  if (times.overruns) text += fmt::format(", {} of {} late", times.overruns, times.moves);
  return text;
}

Json times_json(const MoveTimes& times) {
  return {{"moves", times.moves},
          {"mean_ms", times.mean_ms()},
          {"largest_ms", times.largest_ms()},
          {"overruns", times.overruns}};
}

}  // namespace

void MatchReport::add(const FinishedGame& game) {
  if (game.broken_off) return;
  const int points = game.points();
  score.add_game(points);
  if (game.first_is_white) ++first_as_white[points];
  ++endings[ending_of(game)];
  (game.first_is_white ? first_times : second_times).add(game.times[0]);
  (game.first_is_white ? second_times : first_times).add(game.times[1]);
  if (const auto half = half_pairs_.find(game.number / 2); half != half_pairs_.end()) {
    score.add_pair(half->second, points);
    half_pairs_.erase(half);
  } else {
    half_pairs_[game.number / 2] = points;
  }
  if (game.fault) {
    const bool by_first = (game.fault->side == Side::kWhite) == game.first_is_white;
    failures.push_back({game.number + 1, by_first ? first.name : second.name, game.fault->what, game.fault->why});
  }
}

std::string score_so_far(const MatchReport& report) {
  const double points = points_of(report.score);
  std::string text =
      fmt::format("{}-{}", points_text(points), points_text(static_cast<double>(report.score.games()) - points));
  if (const auto estimate = estimate_pairs(report.score)) {
    const EloEstimate elo = elo_of(*estimate);
    text += "  Elo " + elo_text(elo.value, elo.low, elo.high);
  }
  return text;
}

std::string match_table(const MatchReport& report) {
  const MatchScore& score = report.score;
  const int64_t games = score.games();
  std::string text =
      fmt::format("{} against {}: {} of {} games, {}, seed {}, {}\n", printable(report.first.name),
                  printable(report.second.name), games, report.asked, report.openings, report.seed, report.limit);
  if (games == 0) return text;
  text += share_text("wins", score.wins, games) + share_text("draws", score.draws, games) +
          share_text("losses", score.losses, games) + elo_lines(report);
  const int64_t white = report.first_as_white[0] + report.first_as_white[1] + report.first_as_white[2];
  text += fmt::format(
      "colours as White +{} ={} -{}, as Black +{} ={} -{}\n", report.first_as_white[2], report.first_as_white[1],
      report.first_as_white[0], score.wins - report.first_as_white[2], score.draws - report.first_as_white[1],
      games - white - (score.wins - report.first_as_white[2]) - (score.draws - report.first_as_white[1]));
  text += fmt::format("time    {}; {}\n", times_text(report.first.name, report.first_times),
                      times_text(report.second.name, report.second_times));
  text += "ends    ";
  for (bool begun = false; const auto& [ending, count] : report.endings) {
    text += fmt::format("{}{} {}", begun ? ", " : "", count, ending);
    begun = true;
  }
  text += "\n";
  constexpr size_t kShown = 5;
  for (size_t i = 0; i < std::min(report.failures.size(), kShown); ++i) {
    const FailedGame& failed = report.failures[i];
    text += fmt::format("fault   game {}: {}: {}\n", failed.number, printable(failed.what), printable(failed.why));
  }
  if (report.failures.size() > kShown) text += fmt::format("        and {} more\n", report.failures.size() - kShown);
  return text;
}

Json match_json(const MatchReport& report) {
  const MatchScore& score = report.score;
  const auto side = [](const MatchSide& s) {
    return Json{
        {"given", s.given}, {"name", s.name}, {"promised_elo", s.promised_elo ? Json(*s.promised_elo) : Json()}};
  };
  Json json = {
      {"first", side(report.first)},
      {"second", side(report.second)},
      {"games", score.games()},
      {"asked", report.asked},
      {"seed", report.seed},
      {"openings", report.openings},
      {"limit", report.limit},
      {"pgn", report.pgn},
      {"seconds", report.seconds},
      {"stopped", report.stopped.empty() ? Json() : Json(report.stopped)},
      {"wins", score.wins},
      {"draws", score.draws},
      {"losses", score.losses},
      {"pairs", score.pairs},
      {"as_white",
       {{"wins", report.first_as_white[2]}, {"draws", report.first_as_white[1]}, {"losses", report.first_as_white[0]}}},
      {"endings", report.endings},
      {"times", {{"first", times_json(report.first_times)}, {"second", times_json(report.second_times)}}},
      {"failures", Json::array()},
      {"scale", Json::array()}};
  for (const FailedGame& failed : report.failures)
    json["failures"].push_back(
        {{"game", failed.number}, {"player", failed.player}, {"what", failed.what}, {"why", failed.why}});
  const auto estimate_json = [](const std::optional<MeanEstimate>& estimate) {
    if (!estimate) return Json();
    const ScoreInterval interval = estimate->interval();
    return Json{{"score", estimate->mean},
                {"low", interval.low},
                {"high", interval.high},
                {"elo", elo_json(elo_of(*estimate))},
                {"superiority", estimate->above_half()}};
  };
  json["by_pairs"] = estimate_json(estimate_pairs(score));
  json["by_games"] = estimate_json(estimate_games(score));
  if (const auto estimate = estimate_pairs(score))
    for (const Anchored& a : anchored(report, elo_of(*estimate)))
      json["scale"].push_back({{"name", a.name},
                               {"anchor", a.by},
                               {"anchor_elo", a.anchor},
                               {"anchor_from", a.promised ? "UCI_Elo" : "--anchor"},
                               {"elo", elo_json(a.elo)}});
  return json;
}

}  // namespace tandem::chess
