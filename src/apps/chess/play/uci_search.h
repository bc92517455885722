// apps/chess/play/uci_search.h -- the thread in which our UCI engine thinks.
//
// The reader of the GUI's lines hands over what is to be done and is never held up: everything here returns at once.
// Jobs are done one after the other; each `go` is answered by one bestmove, each `isready` by one readyok. No lock is
// held while a player thinks.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>

#include "apps/chess/play/player_choice.h"
#include "apps/chess/play/uci_output.h"
#include "world/chess/game.h"

namespace tandem::chess {

// What the player must be before a job: made with these settings, and in this game.
struct UciSetup {
  PlaySettings settings;
  uint64_t game_number = 0;
  uint64_t seed = 0;
};

class UciSearch {
 public:
  UciSearch(const PlayerChoice& choice, UciOutput& output);
  ~UciSearch();  // stops everything, and waits for the player to obey
  UciSearch(const UciSearch&) = delete;
  UciSearch& operator=(const UciSearch&) = delete;

  // So many commands wait that no more are to be handed over: a player may take minutes to start, and memory is
  // bounded.
  static constexpr size_t kMostJobs = 1000;
  bool full() const;
  // Says readyok when the player is as `setup` has it.
  void ready(const UciSetup& setup);
  // Thinks about game.position(). `ponder`: no answer before ponder_hit() or stop(); request.infinite: before stop().
  void go(const UciSetup& setup, const Game& game, const ThinkRequest& request, bool ponder);
  void stop();
  void ponder_hit();
  // A `go` has not been answered yet.
  bool thinking() const;

 private:
  struct Job {
    bool is_go = false;
    UciSetup setup;
    Game game;
    ThinkRequest request;
    bool ponder = false;
    bool abandoned = false;  // nobody waits for the answer
    bool answered = false;   // before bestmove is said: whoever has read it may send the next command
    std::stop_source stop;
    std::chrono::steady_clock::time_point began;
  };
  static void forget_history(Job& job);
  void work();
  void prepare(const UciSetup& setup);
  Move think(Job& job);
  void answer(Job& job);

  const PlayerChoice& choice_;
  UciOutput& output_;
  std::unique_ptr<Player> player_;  // of the thread alone, with what it is set to
  UciSetup current_;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<Job> jobs_;  // the front one is being done
  bool over_ = false;
  std::stop_source over_stop_;  // for a player that is still starting: `stop` alone does not end that
  std::thread thread_;          // last: it uses all of the above
};

}  // namespace tandem::chess
