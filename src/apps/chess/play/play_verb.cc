#include "apps/chess/play/play_verb.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>

#include "apps/chess/draws_flag.h"
#include "apps/chess/pgn_file.h"
#include "apps/chess/play/terminal_game.h"
#include "apps/chess/play/uci_server.h"
#include "apps/chess/player_name.h"
#include "base/errors.h"
#include "base/printable.h"
#include "command/command.h"
#include "command/output.h"
#include "command/sources.h"
#include "config/spelling.h"
#include "telemetry/progress.h"
#include "world/chess/fen.h"

namespace tandem {
namespace {

constexpr const char* kUsual = "write `tandem play chess minimax`; `tandem play --help` tells more";

// The word after `chess`.
std::string player_word(const Command& command) {
  const std::vector<std::string>& words = command.arguments.subjects;
  if (words.empty()) throw ConfigError("which game?", "`play` needs a game and a player", kUsual);
  if (words[0] != "chess") {
    const std::vector<std::string> games = {"chess"};
    const bool near = !nearest_word(words[0], games).empty();
    throw ConfigError(fmt::format("there is no game \"{}\"", printable(words[0])), "the games are: chess",
                      near ? "did you mean `chess`?" : kUsual);
  }
  if (words.size() < 2) throw ConfigError("which player?", "`play chess` needs a player", kUsual);
  if (words.size() > 2)
    throw ConfigError(fmt::format("\"{}\" is one word too many", printable(words[2])), "`play chess` takes one player",
                      kUsual);
  return words[1];
}

void refuse_together(const Arguments& arguments, const char* one, const char* other) {
  if (arguments.has(one) && arguments.has(other))
    throw ConfigError(fmt::format("--{} and --{} were both given", one, other), "each asks for something else",
                      "leave one of them out");
}

int serve_uci(const Command& command, chess::PlayerChoice choice) {
  for (const char* flag : {"white", "black", "fen", "pgn", "draws", "ascii", "unicode", "seed"})
    if (command.arguments.has(flag))
      throw ConfigError(fmt::format("--{} is not for --uci", flag), "a GUI sends position, sides and options itself",
                        "leave it out");
  std::signal(SIGPIPE, SIG_IGN);  // a GUI that is gone ends the input too
  const std::string id = fmt::format("{} {}, {}", command.context.program, command.context.version, choice.name);
  chess::UciServer(std::move(choice), id, STDIN_FILENO, STDOUT_FILENO).run();
  return 0;
}

uint64_t seed_of(const Arguments& arguments) {
  const int64_t given = arguments.whole("seed", 0);
  if (given < 0)
    throw ConfigError(fmt::format("--seed {}: below 0", given), "a seed is a whole number from 0 on", "choose another");
  if (arguments.has("seed")) return static_cast<uint64_t>(given);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count()) % 1'000'000'000;
}

int play_in_terminal(const Command& command, const chess::PlayerChoice& choice) {
  const Arguments& arguments = command.arguments;
  refuse_together(arguments, "white", "black");
  refuse_together(arguments, "ascii", "unicode");
  chess::TerminalSettings settings;
  if (arguments.has("fen")) settings.start = chess::position_of_fen(arguments.text("fen"));
  if (arguments.has("black")) settings.person = chess::Side::kBlack;
  settings.seed = seed_of(arguments);
  settings.pgn_file = arguments.text("pgn");
  settings.draws = chess::read_draws(arguments.text("draws", "fide"));
  settings.style.bottom = settings.person;
  settings.style.color = wants_color(STDOUT_FILENO, arguments.no_color);
  settings.style.unicode = arguments.has("unicode") || (!arguments.has("ascii") && locale_is_utf8());
  if (arguments.has("pgn")) chess::PgnFile(settings.pgn_file);  // said now, not when a game has been played
  std::signal(SIGPIPE, SIG_IGN);
  chess::Console console(STDIN_FILENO, STDOUT_FILENO);
  return chess::TerminalGame(choice, std::move(settings), console).play();
}

int run_play(const Command& command) {
  const std::string word = player_word(command);
  if (command.output.json())
    throw ConfigError("`play` has no --json", "a game is played by typing, or with --uci", "leave it out");
  chess::PlayerChoice choice = chess::choose_player(word, runs_root(command.arguments));
  return command.arguments.has("uci") ? serve_uci(command, std::move(choice)) : play_in_terminal(command, choice);
}

}  // namespace

RecipeVerb play_verb() {
  using Kind = VerbFlag::Kind;
  return {.name = "play",
          .summary = "plays chess against you, in the terminal or in any chess program (--uci)",
          .run = run_play,
          .flags = {{"--uci", "", "be a UCI engine: for chess programs", Kind::kSwitch},
                    {"--white", "", "you play White [so it is]", Kind::kSwitch},
                    {"--black", "", "you play Black", Kind::kSwitch},
                    {"--fen", "position", "begin there"},
                    {"--pgn", "file", "add every game to this file when it is left"},
                    {"--draws", "rule", "fide: fifth repetition, 75 moves; claim: third, 50, without a claim [fide]"},
                    {"--ascii", "", "the board in letters, capitals are White", Kind::kSwitch},
                    {"--unicode", "", "the board in chess symbols [if the locale has them]", Kind::kSwitch},
                    {"--seed", "n", "of what the player draws at random [another one each time]", Kind::kWhole}},
          .examples = {{"play chess minimax", "you play White against a search of two half-moves"},
                       {"play chess stockfish:1500 --black --pgn games.pgn", "as Black, games are kept"},
                       {"play chess greedy --fen \"4k3/8/8/8/8/8/4P3/4K3 w - - 0 1\"", "from a position"},
                       {"play chess minimax --uci", "what a chess program (cutechess, Arena) starts"}},
          .subject = "words",
          .subject_help = "chess, and a player: " + chess::players_help(),
          .most_subjects = 3,
          .usage = "chess <player>"};
}

}  // namespace tandem
