// apps/chess/match/match_runner.h -- plays the games of a match, several at once, each thread with its own players.
//
// Game 2p and game 2p + 1 are pair p: one opening, colours exchanged. Games begin in the order of their numbers; which
// thread plays one changes nothing of it.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include "apps/chess/match/match_game.h"
#include "apps/chess/match/openings.h"

namespace tandem::chess {

struct MatchPlayers {
  std::unique_ptr<Player> first, second;
};

struct MatchPlan {
  int64_t games = 0;  // even
  int jobs = 1;
  uint64_t seed = 1;
  MatchRules rules;
  Openings openings;
  std::function<MatchPlayers()> make_players;  // called by each thread once, after `started` is used up
};

// An engine that failed in as many games in a row, in the order in which its games ended, stops the match.
class FailureRule {
 public:
  static constexpr int kInARow = 3;
  // True once the rule is met; `first`: whose game went wrong.
  bool add(const FinishedGame& game);
  bool first_failed() const { return row_[0] >= kInARow; }

 private:
  int row_[2] = {0, 0};
};

class MatchRunner {
 public:
  // Begins at once. `started` are players that exist already. Throws IoError where there is no room for the threads.
  MatchRunner(MatchPlan plan, MatchPlayers started);
  ~MatchRunner();  // breaks off what is going on
  MatchRunner(const MatchRunner&) = delete;
  MatchRunner& operator=(const MatchRunner&) = delete;

  // Can be read when take() or over() has something new.
  int ready_fd() const { return ready_fd_; }
  // The games that ended since, in the order in which they did.
  std::vector<FinishedGame> take();
  // What a thread met that is no player's fault; no game begins once there is one. Null: nothing.
  std::exception_ptr error();
  bool over() const { return working_ == 0; }   // take() may still have games
  int64_t playing() const { return playing_; }  // games going on now

  void begin_no_more() { no_more_ = true; }
  void break_off();  // the games going on too; they come out of take() as broken off

 private:
  void start_threads(MatchPlayers started);
  void work(MatchPlayers players);
  FinishedGame play(int64_t number, MatchPlayers& players);
  void tell();

  MatchPlan plan_;
  int ready_fd_ = -1;
  std::atomic<int64_t> next_{0}, playing_{0};
  std::atomic<int> working_{0};
  std::atomic<bool> no_more_{false};
  std::stop_source stop_;
  std::mutex mutex_;
  std::vector<FinishedGame> ended_;
  FailureRule rule_;  // no game begins once it is met
  std::exception_ptr error_;
  std::vector<std::jthread> threads_;
};

}  // namespace tandem::chess
