#include "apps/chess/match/match_verb.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>

#include "apps/chess/match/engine_room.h"
#include "apps/chess/match/match_line.h"
#include "apps/chess/match/match_watch.h"
#include "apps/chess/stoppable.h"
#include "base/clock.h"
#include "base/errors.h"

namespace tandem {
namespace {

using namespace chess;

// A signal while engines start, which may take a minute; 0: none came.
struct StartSignal {
  int number = 0;
  int code() const { return static_cast<int>(number == SIGINT ? ExitCode::kInterrupted : ExitCode::kTerminated); }
};

// Both players, each begun once: what is wrong with an engine is said before the first game.
MatchPlayers start_players(const MatchLine& line, const SignalQueue& signals, StartSignal& ended) {
  MatchPlayers players{make_player(line.first, line.patience), make_player(line.second, line.patience)};
  const auto woken = [&] {
    while (const std::optional<int> signal = signals.next()) {
      if (*signal == SIGTSTP) raise(SIGSTOP);
      if (*signal == SIGINT || *signal == SIGTERM || *signal == SIGHUP) ended.number = *signal;
    }
    return ended.number != 0;
  };
  try {
    do_stoppable(signals.fd(), woken, [&players](const std::stop_token& stop) {
      players.first->begin_game(0, stop);
      players.second->begin_game(0, stop);
    });
  } catch (const PlayerFault& fault) {
    if (fault.kind() != PlayerFault::Kind::kStopped) throw;
  }
  return players;
}

MatchReport report_of(const MatchLine& line, const MatchPlayers& players) {
  MatchReport report;
  report.first = {line.first.text, players.first->name(), players.first->promised_elo()};
  report.second = {line.second.text, players.second->name(), players.second->promised_elo()};
  if (report.first.name == report.second.name) report.first.name += " #1", report.second.name += " #2";
  report.anchor = line.anchor;
  if (const MatchSide& side = report.first.promised_elo ? report.first : report.second;
      line.anchor && side.promised_elo)
    throw ConfigError(fmt::format("--anchor {:.0f}: the match has an anchor", *line.anchor),
                      fmt::format("{} has an Elo of its own", side.name), "leave --anchor out");
  report.asked = line.plan.games;
  report.seed = line.plan.seed;
  report.openings = line.openings;
  report.limit = line.limit;
  return report;
}

// Made before the engines are started, so that what is wrong with it is said first.
PgnFile pgn_file(const Arguments& arguments) {
  if (arguments.text("pgn") == "-")
    throw ConfigError("--pgn -: games go to a file", "the result of the match goes to stdout", "name a file");
  return arguments.has("pgn") ? PgnFile(arguments.text("pgn")) : PgnFile::make_new("match-" + utc_file_stamp());
}

void warn_of_overruns(const Command& command, const std::string& name, const MoveTimes& times) {
  if (times.overruns)
    command.output.warn(fmt::format(
        "{} took more than its move time, a fifth of it and 50 ms for {} of {} moves, {:.0f} ms at most: fewer --jobs "
        "make it fairer where the machine is busy",
        name, times.overruns, times.moves, times.largest_ms()));
}

void tell_result(const Command& command, const MatchReport& report) {
  if (command.output.json())
    command.output.object(match_json(report));
  else
    command.output.data(match_table(report));
  warn_of_overruns(command, report.first.name, report.first_times);
  warn_of_overruns(command, report.second.name, report.second_times);
  if (!report.stopped.empty()) command.output.say(fmt::format("stopped: {}", report.stopped));
  if (report.first.promised_elo || report.second.promised_elo)
    command.output.say("Stockfish tunes UCI_Elo at minutes a game; how far the anchor holds: docs/chess-matches.md");
  command.output.say(fmt::format("games {}", report.pgn));
}

int run_match(const Command& command) {
  MatchLine line = read_match_line(command);
  PgnFile file = pgn_file(command.arguments);
  make_room_for_engines(static_cast<int>(std::min<int64_t>(line.plan.jobs, line.plan.games)),
                        static_cast<int>(line.first.is_process()) + static_cast<int>(line.second.is_process()));
  const SignalQueue signals;  // before the threads, which would take a signal otherwise
  StartSignal ended;
  MatchPlayers players = start_players(line, signals, ended);
  if (ended.number != 0) {
    command.output.say("stopped before the first game");
    return ended.code();
  }
  for (const Player* player : {players.first.get(), players.second.get()})
    for (const std::string& note : player->notes()) command.output.warn(note);
  MatchReport report = report_of(line, players);
  report.pgn = file.path().string();
  if (const auto count = line.plan.openings.count(); count && *count < line.plan.games / 2)
    command.output.warn(fmt::format("{} openings for {} pairs: some are played again", *count, line.plan.games / 2));
  MatchPgn pgn(std::move(file), report.first.name, report.second.name,
               {.event = fmt::format("tandem match, seed {}", report.seed),
                .date = "",
                .time_control = line.plan.rules.clock ? line.plan.rules.clock->text() : ""});
  line.plan.make_players = [line_first = line.first, line_second = line.second, patience = line.patience] {
    return MatchPlayers{make_player(line_first, patience), make_player(line_second, patience)};
  };
  MatchWatch watch(command.output, report, pgn);
  int code = 0;
  {
    MatchRunner runner(std::move(line.plan), std::move(players));
    code = watch.run(runner, signals);
  }
  tell_result(command, report);
  if (watch.error()) std::rethrow_exception(watch.error());  // the games until then are in the result, and kept
  return code;
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
       {"--tc", "s+s", "a clock for each side: seconds, and what a move adds; 40/300: again after 40 moves"},
       {"-j,--jobs", "n", "games at once [the cores of this machine]", Kind::kWhole},
       {"--seed", "n", "of openings and of players that draw; the same games for any --jobs [1]", Kind::kWhole},
       {"--max-plies", "n", "half-moves, with those of the opening, after which a game is drawn [400]", Kind::kWhole},
       {"--draws", "rule", "claim: third repetition, 50 moves; fide: fifth, 75 [claim]"},
       {"--anchor", "elo", "Elo of the second player, as another match has shown it: the scale of the first",
        Kind::kWhole},
       {"--timeout", "s",
        "seconds an engine may be late before it loses [5 beyond --movetime, else 60], and to start if more than 30"},
       {"--pgn", "file", "the file that games are added to [a new match-<time>.pgn here]"}},
      {{"match minimax random", "100 games, 50 openings with colours exchanged"},
       {"match stockfish:1500 minimax --games 200 --movetime 50", "on one scale with Stockfish's UCI_Elo"},
       {"match uci:./old uci:./new --nodes 2000 --openings book.epd", "two versions of an engine"},
       {"match stockfish:2000 uci:./mine --tc 60+0.6", "by the clock, a minute and 0.6 s a move"},
       {"match stockfish:nodes=1000 greedy --json --pgn games.pgn", "for scripts"}},
      "players",
      players_help(),
      2,
      "<player> <player>"};
}

}  // namespace tandem
