#include "apps/chess/match/match_verb.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/chess/match/match_pgn.h"
#include "apps/chess/match/match_report.h"
#include "apps/chess/match/match_runner.h"
#include "apps/chess/player_name.h"
#include "base/clock.h"
#include "base/cores.h"
#include "base/errors.h"
#include "base/printable.h"
#include "command/command.h"
#include "command/out_file.h"
#include "launch/signal_queue.h"
#include "telemetry/human.h"
#include "telemetry/progress.h"
#include "world/chess/players/random_opening.h"

namespace tandem {
namespace {

using namespace chess;

constexpr int64_t kUsualGames = 100, kMostGames = 1'000'000, kMostJobs = 1024, kMostPlies = 10'000;

// The value of a flag, within its bounds.
int64_t whole_flag(const Arguments& arguments, const char* flag, int64_t otherwise, int64_t least, int64_t most) {
  const int64_t value = arguments.whole(flag, otherwise);
  if (value < least || value > most)
    throw ConfigError(fmt::format("--{} {}: out of its range", flag, value),
                      fmt::format("it goes from {} to {}", least, most), "give another number");
  return value;
}

// What the line asks for, before anything is started.
struct MatchLine {
  PlayerName first, second;
  MatchPlan plan;
  std::optional<double> patience;
  std::string openings, limit;  // in words
};

MatchRules rules_of(const Arguments& arguments) {
  MatchRules rules;
  rules.max_plies = static_cast<int>(whole_flag(arguments, "max-plies", rules.max_plies, 1, kMostPlies));
  if (arguments.has("movetime"))
    rules.limits.move_time = std::chrono::milliseconds(whole_flag(arguments, "movetime", 0, 1, 24 * 3600 * 1000));
  if (arguments.has("nodes")) rules.limits.nodes = whole_flag(arguments, "nodes", 0, 1, 1'000'000'000'000);
  const std::string draws = arguments.text("draws", "claim");
  if (draws == "fide")
    rules.draws = DrawRules::fide();
  else if (draws != "claim")
    throw ConfigError(fmt::format("--draws {}: not known", printable(draws)),
                      "claim: the third repetition and 50 moves; fide: the fifth and 75", "give claim or fide");
  return rules;
}

std::string limit_text(const ThinkRequest& limits) {
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
  line.plan.openings = Openings::of_file(file, line.plan.seed, plies);
  line.openings = fmt::format("{} openings of {}", *line.plan.openings.count(), printable(file));
}

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
  line.limit = limit_text(line.plan.rules.limits);
  if (arguments.has("timeout")) line.patience = static_cast<double>(whole_flag(arguments, "timeout", 0, 1, 24 * 3600));
  take_openings(line, arguments);
  return line;
}

// Both players, each begun once: what is wrong with an engine is said before the first game.
MatchPlayers start_players(const MatchLine& line) {
  MatchPlayers players{make_player(line.first, line.patience), make_player(line.second, line.patience)};
  players.first->begin_game(0);
  players.second->begin_game(0);
  return players;
}

MatchReport report_of(const MatchLine& line, const MatchPlayers& players) {
  MatchReport report;
  report.first = {line.first.text, players.first->name(), players.first->promised_elo()};
  report.second = {line.second.text, players.second->name(), players.second->promised_elo()};
  if (report.first.name == report.second.name) report.first.name += " #1", report.second.name += " #2";
  report.asked = line.plan.games;
  report.seed = line.plan.seed;
  report.openings = line.openings;
  report.limit = line.limit;
  return report;
}

std::string pgn_file(const Arguments& arguments) {
  if (arguments.has("pgn")) return arguments.text("pgn");
  const std::string stem = "match-" + utc_file_stamp();
  std::string file = stem + ".pgn";
  for (int i = 2; std::filesystem::exists(file); ++i) file = fmt::format("{}-{}.pgn", stem, i);
  return file;
}

// The match while it goes on: games as they end, the bar, and what signals ask for.
class MatchWatch {
 public:
  MatchWatch(const Command& command, MatchReport& report, MatchPgn& pgn)
      : output_(command.output),
        report_(report),
        pgn_(pgn),
        began_(monotonic_seconds()),
        display_({.tty = isatty(STDERR_FILENO) != 0,
                  .color = command.output.color(),
                  .out = [](std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); },
                  .width = stderr_columns},
                 began_) {}

  // The exit code.
  int run(MatchRunner& runner, const SignalQueue& signals) {
    while (!runner.over()) {
      pollfd waits[] = {{runner.ready_fd(), POLLIN, 0}, {signals.fd(), POLLIN, 0}};
      poll(waits, 2, 100);
      while (const std::optional<int> signal = signals.next()) act_on(*signal, runner);
      take(runner);
      show();
    }
    take(runner);
    pgn_.add_waiting();
    display_.clear();
    report_.seconds = monotonic_seconds() - began_;
    return code_;
  }

 private:
  void act_on(int signal, MatchRunner& runner) {
    if (signal == SIGTSTP) {
      display_.clear();
      raise(SIGSTOP);
    }
    if (signal != SIGINT && signal != SIGTERM && signal != SIGHUP) return;
    code_ = static_cast<int>(signal == SIGINT ? ExitCode::kInterrupted : ExitCode::kTerminated);
    if (signal == SIGINT && report_.stopped.empty() && runner.playing() > 0) {
      say(fmt::format("no more games; {} under way are played to their end. Ctrl-C again breaks them off",
                      runner.playing()));
      runner.begin_no_more();
    } else {
      runner.break_off();
    }
    report_.stopped = signal == SIGINT ? "Ctrl-C" : "it was told to end";
  }

  void take(MatchRunner& runner) {
    for (FinishedGame& game : runner.take()) {
      report_.add(game);
      tell(game);
      if (rule_.add(game) && report_.stopped.empty()) {
        const std::string& who = rule_.first_failed() ? report_.first.name : report_.second.name;
        report_.stopped = fmt::format("{} failed in {} games in a row", who, FailureRule::kInARow);
        code_ = static_cast<int>(ExitCode::kFailed);
        runner.break_off();
      }
      pgn_.add(std::move(game));
    }
  }

  void tell(const FinishedGame& game) {
    if (game.fault) {
      say(fmt::format("game {}: {} lost it: {}; {}", game.number + 1,
                      game.fault->side == Side::kWhite ? "White" : "Black", game.fault->what, game.fault->why));
    } else if (output_.verbose() && !game.broken_off) {
      say(fmt::format("game {}: {} after {} half-moves, {}", game.number + 1, game.result_text(),
                      game.game.moves().size(), game.ending()));
    }
  }

  void say(const std::string& line) {
    if (!output_.quiet()) display_.say(printable(line));
  }

  void show() {
    const double now = monotonic_seconds();
    if (output_.quiet() || !display_.due(now) || report_.score.games() == 0) return;
    ProgressRow row;
    row.title = printable(fmt::format("{} - {}", report_.first.name, report_.second.name));
    row.step = report_.score.games(), row.total = report_.asked;
    row.counted = "game", row.unit = "games";
    row.fraction = static_cast<double>(row.step) / static_cast<double>(row.total);
    row.units_per_second = static_cast<double>(row.step) / (now - began_);
    row.eta_seconds = static_cast<double>(row.total - row.step) / row.units_per_second;
    row.result = score_so_far(report_);
    display_.show({.rows = {row}, .unicode = locale_is_utf8()}, now);
  }

  const Output& output_;
  MatchReport& report_;
  MatchPgn& pgn_;
  double began_;
  ProgressDisplay display_;
  FailureRule rule_;
  int code_ = 0;
};

int tell_result(const Command& command, const MatchReport& report, int code) {
  if (command.output.json())
    command.output.object(match_json(report));
  else
    command.output.data(match_table(report));
  if (!report.stopped.empty()) command.output.say(fmt::format("stopped: {}", report.stopped));
  if (report.first.promised_elo || report.second.promised_elo)
    command.output.say("Stockfish tunes UCI_Elo at minutes a game; how far the anchor holds: docs/chess-matches.md");
  command.output.say(fmt::format("games {}", report.pgn));
  return code;
}

int run_match(const Command& command) {
  MatchLine line = read_match_line(command);
  const std::string file = pgn_file(command.arguments);
  check_out_file(file, "--pgn");
  MatchPlayers players = start_players(line);
  for (const Player* player : {players.first.get(), players.second.get()})
    for (const std::string& note : player->notes()) command.output.warn(note);
  MatchReport report = report_of(line, players);
  report.pgn = file;
  if (const auto count = line.plan.openings.count(); count && *count < line.plan.games / 2)
    command.output.warn(fmt::format("{} openings for {} pairs: some are played again", *count, line.plan.games / 2));
  MatchPgn pgn(file, report.first.name, report.second.name, fmt::format("tandem match, seed {}", report.seed));
  line.plan.make_players = [line_first = line.first, line_second = line.second, patience = line.patience] {
    return MatchPlayers{make_player(line_first, patience), make_player(line_second, patience)};
  };
  MatchWatch watch(command, report, pgn);
  int code = 0;
  {
    const SignalQueue signals;  // before the threads, which would take a signal otherwise
    MatchRunner runner(std::move(line.plan), std::move(players));
    code = watch.run(runner, signals);
  }
  return tell_result(command, report, code);
}

std::string players_help() {
  std::string help;
  for (const auto& [spelling, what] : known_players())
    help += fmt::format("{}{} ({})", help.empty() ? "" : "; ", spelling, what);
  return help;
}

}  // namespace

RecipeVerb match_verb() {
  using Kind = VerbFlag::Kind;
  return {
      "match",
      "games between two chess players, several at once, and their difference in Elo",
      run_match,
      {{"--games", "n", "how many, an even number: each opening twice, with colours exchanged [100]", Kind::kWhole},
       {"--openings", "file", "positions (.epd) or games (.pgn) to begin with [random ones, balanced, by the seed]"},
       {"--opening-plies", "n", "half-moves of an opening [8; of a .pgn: all]", Kind::kWhole},
       {"--movetime", "ms", "milliseconds that engines think about a move [100]", Kind::kWhole},
       {"--nodes", "n", "nodes that engines look at for a move", Kind::kWhole},
       {"-j,--jobs", "n", "games at once [the cores of this machine]", Kind::kWhole},
       {"--seed", "n", "of openings and of players that draw; the same games for any --jobs [1]", Kind::kWhole},
       {"--max-plies", "n", "half-moves after which a game is drawn [400]", Kind::kWhole},
       {"--draws", "rule", "claim: third repetition, 50 moves; fide: fifth, 75 [claim]"},
       {"--timeout", "s", "seconds an engine may be late before it loses [5 beyond --movetime, else 60]", Kind::kWhole},
       {"--pgn", "file", "where the games go [match-<time>.pgn here]"}},
      {{"match minimax random", "100 games, 50 openings with colours exchanged"},
       {"match stockfish:1500 minimax --games 200 --movetime 50", "on one scale with Stockfish's UCI_Elo"},
       {"match uci:./old uci:./new --nodes 2000 --openings book.epd", "two versions of an engine"},
       {"match stockfish:nodes=1000 greedy --json --pgn games.pgn", "for scripts"}},
      "players",
      players_help(),
      2};
}

}  // namespace tandem
