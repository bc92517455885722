#include "apps/chess/match/match_line.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>

#include "apps/chess/draws_flag.h"
#include "apps/chess/uci/uci_player.h"
#include "base/cores.h"
#include "base/errors.h"
#include "base/printable.h"
#include "world/chess/players/random_opening.h"

namespace tandem::chess {
namespace {

constexpr int64_t kUsualGames = 100, kMostGames = 1'000'000, kMostJobs = 1024, kMostPlies = 10'000, kMostElo = 10'000;

// The value of a flag, within its bounds.
int64_t whole_flag(const Arguments& arguments, const char* flag, int64_t otherwise, int64_t least, int64_t most) {
  const int64_t value = arguments.whole(flag, otherwise);
  if (value < least || value > most)
    throw ConfigError(fmt::format("--{} {}: out of its range", flag, value),
                      fmt::format("it goes from {} to {}", least, most), "give another number");
  return value;
}

MatchRules rules_of(const Arguments& arguments) {
  MatchRules rules;
  rules.max_plies = static_cast<int>(whole_flag(arguments, "max-plies", rules.max_plies, 1, kMostPlies));
  if (arguments.has("movetime"))
    rules.limits.move_time = std::chrono::milliseconds(whole_flag(arguments, "movetime", 0, 1, 24 * 3600 * 1000));
  if (arguments.has("nodes")) rules.limits.nodes = whole_flag(arguments, "nodes", 0, 1, 1'000'000'000'000);
  if (arguments.has("tc")) {
    rules.clock = read_time_control(arguments.text("tc"));
    for (const char* const flag : {"movetime", "nodes"})
      if (arguments.has(flag))
        throw ConfigError(fmt::format("--tc and --{} were both given", flag),
                          "engines that play by the clock choose the time for a move by themselves",
                          "leave one of them out; a player's own limit stands in its name, as in stockfish:nodes=1000");
  }
  rules.draws = read_draws(arguments.text("draws", "claim"));
  return rules;
}

// In seconds, with a fraction. 0 would leave no time to answer at all.
std::optional<double> timeout_of(const Arguments& arguments) {
  if (!arguments.has("timeout")) return std::nullopt;
  constexpr double kLeast = 0.01, kMost = 24 * 3600;
  const std::string text = arguments.text("timeout");
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds, std::chars_format::fixed);
  if (error != std::errc() || end != text.data() + text.size() || !(seconds >= kLeast && seconds <= kMost))
    throw ConfigError(fmt::format("--timeout {}: no such time", printable(text)),
                      fmt::format("it is seconds, from {:g} to {:g}", kLeast, kMost), "give 0.5 or 60, for example");
  return seconds;
}

bool has_no_limit(const PlayerName& player) {
  return player.is_process() && !player.nodes && !player.depth && !player.move_time_ms;
}

std::string limit_text(const MatchLine& line) {
  ThinkRequest limits = line.plan.rules.limits;
  if (line.plan.rules.clock) return fmt::format("{} s on the clock", line.plan.rules.clock->text());
  if (!limits.move_time && !limits.nodes && (has_no_limit(line.first) || has_no_limit(line.second)))
    limits.move_time = UciPlayer::kUsualMoveTime;
  std::string text;
  if (limits.move_time) text = fmt::format("{} ms a move", limits.move_time->count());
  if (limits.nodes) text += fmt::format("{}{} nodes a move", text.empty() ? "" : ", ", *limits.nodes);
  return text.empty() ? "each by its own limit" : text;
}

void take_openings(MatchLine& line, const Arguments& arguments) {
  const std::string file = arguments.text("openings");
  std::optional<int> plies;
  if (arguments.has("opening-plies"))
    plies = static_cast<int>(whole_flag(arguments, "opening-plies", 0, 0, kMostOpeningPlies));
  if (file.empty()) {
    const int length = plies.value_or(kOpeningPlies);
    line.plan.openings = Openings::by_rule(line.plan.seed, length);
    line.openings = fmt::format("random openings of {} half-moves", length);
    return;
  }
  line.plan.openings = Openings::of_file(file, line.plan.seed, plies, line.plan.rules.draws);
  line.openings = fmt::format("{} openings of {}", *line.plan.openings.count(), printable(file));
}

// Games that are drawn where they begin would show nothing.
void check_length(const MatchLine& line) {
  const int opening = line.plan.openings.most_plies(), most = line.plan.rules.max_plies;
  if (most > opening) return;
  throw ConfigError(fmt::format("--max-plies {}: an opening has {} half-moves", most, opening),
                    "those of the opening count, so that its games would be drawn before anybody has moved",
                    fmt::format("give more than {}, or shorter openings with --opening-plies", opening));
}

}  // namespace

MatchLine read_match_line(const Command& command) {
  const Arguments& arguments = command.arguments;
  if (arguments.subjects.size() != 2)
    throw ConfigError(fmt::format("a match has two players, and the line names {}", arguments.subjects.size()),
                      "each is a name such as random, minimax, stockfish:1500 or uci:/path/to/engine",
                      fmt::format("write `{} match minimax random`", command.context.program));
  MatchLine line;
  line.first = read_player_name(arguments.subjects[0]);
  line.second = read_player_name(arguments.subjects[1]);
  line.plan.games = whole_flag(arguments, "games", kUsualGames, 2, kMostGames);
  if (line.plan.games % 2 != 0)
    throw ConfigError(fmt::format("--games {} is odd", line.plan.games),
                      "each opening is played twice, with colours exchanged",
                      fmt::format("give {} or {}", line.plan.games - 1, line.plan.games + 1));
  line.plan.jobs = static_cast<int>(whole_flag(arguments, "jobs", usable_cores(), 1, kMostJobs));
  line.plan.seed = static_cast<uint64_t>(whole_flag(arguments, "seed", 1, 0, std::numeric_limits<int64_t>::max()));
  line.plan.rules = rules_of(arguments);
  line.limit = limit_text(line);
  line.patience = UciPatience::of_match(timeout_of(arguments));
  if (arguments.has("anchor"))
    line.anchor = static_cast<double>(whole_flag(arguments, "anchor", 0, -kMostElo, kMostElo));
  take_openings(line, arguments);
  check_length(line);
  return line;
}

}  // namespace tandem::chess
