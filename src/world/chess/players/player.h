// world/chess/players/player.h -- whoever chooses moves: a rule, a search, an engine in a process of its own, a
// network.
//
// A player plays one game at a time; several games at once take several players. What it draws at random follows from
// the game's seed and the number of the move alone, so that a seed gives the same game again, also after moves were
// taken back. Engines by UCI are in apps/chess/, which also makes a player from its name (apps/chess/player_name.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/errors.h"
#include "world/chess/game.h"

namespace tandem::chess {

// From the side that is to move: hundredths of a pawn, or moves until mate (negative: it is mated; 0: it is already).
struct Score {
  int centipawns = 0;
  std::optional<int> mate_in = {};  // counts instead of centipawns

  bool operator==(const Score&) const = default;
};

// What a player thought, when it moved or on the way there.
struct Thought {
  Move move = Move();
  std::optional<Score> score = {};  // nothing: the player judges no positions
  int depth = 0;
  int64_t nodes = 0;
  std::vector<Move> line = {};  // expected continuation, `move` first; may be empty
};

// What is left on both clocks.
struct Clocks {
  std::chrono::milliseconds white{0}, black{0}, white_increment{0}, black_increment{0};
  std::optional<int> moves_to_go = {};  // until more time comes
};

// How long to think: the first limit that is reached ends it. An engine that has limits of its own
// (stockfish:nodes=1000) keeps to those instead, and one without any limit takes a default; rules and fixed-depth
// searches need none.
struct ThinkRequest {
  std::optional<std::chrono::milliseconds> move_time = {};
  std::optional<int64_t> nodes = {};
  std::optional<int> depth = {};
  std::optional<Clocks> clocks = {};
  bool infinite = false;  // until `stop`; a player that has nothing more to find answers earlier

  std::stop_token stop = {};                        // answer now, with the best move so far
  std::function<void(const Thought&)> report = {};  // called on the way, by the thread that called think()
};

// What a player did wrong. The game is lost, but the player may be used again: begin_game() restarts it.
class PlayerFault : public Error {
 public:
  enum class Kind : uint8_t {
    kNoEngine,     // it could not be started, or what was started speaks no UCI
    kCrashed,      // it ended, by itself or by a signal
    kSilent,       // no answer within its limit
    kIllegalMove,  // an answer that is no legal move
    kFlood,        // more output than an engine may have
    kStopped,      // nothing: begin_game() was told to stop before it was ready
  };
  PlayerFault(Kind kind, const std::string& what, std::string why, std::string todo)
      : Error(kind == Kind::kNoEngine ? ExitCode::kUsage : ExitCode::kFailed, what, std::move(why), std::move(todo)),
        kind_(kind) {}
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

class Player {
 public:
  virtual ~Player() = default;

  // As results and PGN name it: "minimax", "Stockfish 15.1, UCI_Elo 1500".
  virtual std::string name() const = 0;
  // Elo that the player itself promises: of Stockfish with UCI_Elo. Known once a game was begun.
  virtual std::optional<double> promised_elo() const { return std::nullopt; }
  // What a user should know of this player, once a game was begun: "UCI_Elo 900 is below its least, 1350 is used".
  virtual std::vector<std::string> notes() const { return {}; }

  // The time for a move that it is to keep under this request; nothing: it goes by other limits, or needs none.
  virtual std::optional<std::chrono::milliseconds> move_time(const ThinkRequest&) const { return std::nullopt; }

  // Before the first move of each game. An engine may take a minute to start; told to stop, it has no game and throws a
  // PlayerFault (kStopped). Throws PlayerFault; IoError where this machine has no room for another process.
  void begin_game(uint64_t seed, const std::stop_token& stop = {}) { prepare_game(seed, stop); }
  // A legal move in game.position(); where there is none, Move() or a PlayerFault. Throws PlayerFault.
  virtual Thought think(const Game& game, const ThinkRequest& request) = 0;

 private:
  virtual void prepare_game(uint64_t seed, const std::stop_token& stop) = 0;
};

}  // namespace tandem::chess
