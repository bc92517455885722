// apps/chess/play/terminal_game.h -- a person plays against a player by typing: `tandem play chess RUN`.
//
// What is typed wrong is explained, and the game goes on. A game is added to the PGN file when it is left: for another
// one, by quit, at the end of the input, by Ctrl-C. A player that failed is started again for another game and by undo;
// where that fails too, the game that it lost stays as it is.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "apps/chess/play/board_text.h"
#include "apps/chess/play/console.h"
#include "apps/chess/play/player_choice.h"
#include "apps/chess/play/typed_line.h"
#include "world/chess/game.h"
#include "world/chess/pgn.h"

namespace tandem::chess {

struct TerminalSettings {
  Side person = Side::kWhite;
  Position start = start_position();
  uint64_t seed = 1;     // of the first game; the next ones count on
  std::string pgn_file;  // empty: none
  DrawRules draws = DrawRules::fide();
  BoardStyle style;
};

class TerminalGame {
 public:
  TerminalGame(const PlayerChoice& choice, TerminalSettings settings, Console& console);

  // Until it is left; returns the exit code. Throws Error where the player can't begin, IoError where the PGN file
  // can't be written.
  int play();

 private:
  // How a game ended, and in words why.
  struct Ending {
    std::optional<Side> winner;
    std::string why;
  };

  void begin();
  void start_player();
  bool restart_player();
  bool obey(const TypedLine& typed);  // false: quit
  void make_typed_move(const TypedLine& typed);
  void let_player_move();
  void make(Move move);
  void undo();
  void claim_draw();
  void list_moves();
  void begin_another(const std::string& side);
  void end(std::optional<Side> winner, std::string why);
  void show_board();
  void say(std::string_view line);
  void explain(const std::string& what, const std::string& why, const std::string& todo);
  bool refuse_if_over();
  std::string prompt() const;
  PgnGame record() const;
  void add_to(const std::string& file);
  void leave();

  const PlayerChoice& choice_;
  TerminalSettings settings_;
  Console& console_;
  std::unique_ptr<Player> player_;  // null: it has failed
  std::string opponent_;            // its name, also then
  Game game_;
  std::optional<Ending> ending_;
};

}  // namespace tandem::chess
