// apps/chess/player_name.h -- the one spelling of players, as commands take them, and the player that a name means.
//
//   random                        any legal move, each as likely
//   greedy                        the best capture, else any move
//   minimax  minimax:depth=3      full search to depth 2, or another one
//   stockfish                     Debian's, or the first one in PATH
//   stockfish:1500                as strong as Elo 1500: UCI_LimitStrength and UCI_Elo
//   stockfish:nodes=1000          after 1,000 nodes; also depth=, movetime= (ms), elo=, several with commas
//   uci:/path/to/engine           any engine that speaks UCI; options as above, and option.Hash=64
//   uci:/path,args=-w net.pb      with words for its command line, which blanks separate
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/chess/uci/uci_patience.h"
#include "world/chess/players/player.h"

namespace tandem::chess {

struct PlayerName {
  enum class Kind : uint8_t { kRandom, kGreedy, kMinimax, kStockfish, kUci };
  Kind kind = Kind::kRandom;
  std::string text;                                          // as it was given
  std::filesystem::path engine;                              // of kUci
  std::vector<std::string> arguments;                        // of kUci: words of its command line
  std::optional<int64_t> elo, nodes, depth, move_time_ms;    // its own limits; a ThinkRequest's come first
  std::vector<std::pair<std::string, std::string>> options;  // setoption name ... value ..., in their order
  bool is_process() const { return kind == Kind::kStockfish || kind == Kind::kUci; }
};

// Throws ConfigError: what is wrong with the text, and what could be meant. Looks at no file.
PlayerName read_player_name(std::string_view text);

// Nothing is started yet: begin_game() does. Throws ConfigError where there is no Stockfish or no such program.
// `patience` is for engines.
std::unique_ptr<Player> make_player(const PlayerName& name, const UciPatience& patience = {});
inline std::unique_ptr<Player> make_player(std::string_view text) { return make_player(read_player_name(text)); }

// For help: each spelling and what it does, "random (any legal move, each as likely); ...".
std::string players_help();

}  // namespace tandem::chess
