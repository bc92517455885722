// apps/chess/uci/uci_player.h -- an engine that speaks UCI as a player: Stockfish, or any program by its path.
//
// The process is started by begin_game() and kept from game to game. Whatever it does wrong is a PlayerFault with its
// name, the position and its last words; the process is killed then, and the next begin_game() starts another. Where
// neither the player nor the request has a limit, it thinks for kUsualMoveTime.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/chess/uci/engine_line.h"
#include "apps/chess/uci/engine_process.h"
#include "apps/chess/uci/uci_patience.h"
#include "world/chess/players/player.h"

namespace tandem::chess {

struct UciSettings {
  std::filesystem::path program;
  std::vector<std::string> arguments;  // words of its command line
  std::string called;                  // as the user named it
  std::optional<int64_t> elo, nodes;
  std::optional<int> depth;
  std::optional<std::chrono::milliseconds> move_time;
  std::vector<std::pair<std::string, std::string>> options;
  UciPatience patience;

  bool has_limits() const { return nodes || depth || move_time; }
};

class UciPlayer : public Player {
 public:
  static constexpr std::chrono::milliseconds kUsualMoveTime{100};

  explicit UciPlayer(UciSettings settings);
  ~UciPlayer() override;

  std::string name() const override;
  std::optional<double> promised_elo() const override;
  std::vector<std::string> notes() const override { return notes_; }
  std::optional<std::chrono::milliseconds> move_time(const ThinkRequest& request) const override;
  Thought think(const Game& game, const ThinkRequest& request) override;

  const UciPatience& patience() const { return settings_.patience; }
  pid_t pid() const { return engine_ ? engine_->pid() : -1; }

 private:
  // Throws PlayerFault; ConfigError where the engine has no such option or does not take its value; IoError.
  void prepare_game(uint64_t seed, const std::stop_token& stop) override;
  void start();
  void read_greeting();
  [[noreturn]] void fail_greeting(EngineProcess::Got got, const std::string& first);
  void set_options();
  std::string set_option(const std::string& name, const std::string& value);  // as it was sent
  void make_ready();
  void drop_what_nobody_asked_for();
  void send(const std::string& line, double deadline);
  Thought answer(const Game& game, const std::string& best, const EngineInfo& info);
  ThinkRequest with_own_limits(const ThinkRequest& request) const;
  // Kills the process and throws.
  [[noreturn]] void fail(PlayerFault::Kind kind, const std::string& what, std::string why);
  [[noreturn]] void fail_by(EngineProcess::Got got, const std::string& late);
  [[noreturn]] void stop_starting();

  UciSettings settings_;
  std::unique_ptr<EngineProcess> engine_;
  int wake_fd_ = -1;
  std::string engine_name_;
  std::vector<EngineOption> options_;
  std::vector<std::string> notes_;
  std::optional<int64_t> elo_;  // that the engine was set to
  std::string thinking_of_;     // the position, for messages
  bool stopped_ = false;        // the last search was told to stop: it may have been answering already
};

// "position startpos moves e2e4 ..." or "position fen ... moves ...".
std::string position_command(const Game& game);
// "go movetime 100"
std::string go_command(const ThinkRequest& request);

}  // namespace tandem::chess
