#include "apps/chess/match/match_runner.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

namespace tandem::chess {
namespace {

// Counts itself while it is there, however the game ends.
class GameUnderWay {
 public:
  explicit GameUnderWay(std::atomic<int64_t>& count) : count_(count) { ++count_; }
  ~GameUnderWay() { --count_; }
  GameUnderWay(const GameUnderWay&) = delete;
  GameUnderWay& operator=(const GameUnderWay&) = delete;

 private:
  std::atomic<int64_t>& count_;
};

}  // namespace

MatchRunner::MatchRunner(MatchPlan plan, MatchPlayers started) : plan_(std::move(plan)) {
  ready_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (ready_fd_ < 0) throw IoError("cannot make an event", errno, "close other programs, or raise `ulimit -n`");
  try {
    start_threads(std::move(started));
  } catch (const std::system_error& error) {
    const size_t running = threads_.size();
    break_off();  // else those that run would play the whole match first
    threads_.clear();
    close(ready_fd_);
    throw IoError(fmt::format("only {} of {} games at once could begin", running, plan_.jobs), error.code().value(),
                  "give fewer --jobs, or raise `ulimit -u`");
  }
}

void MatchRunner::start_threads(MatchPlayers started) {
  const int count = static_cast<int>(std::min<int64_t>(plan_.jobs, plan_.games));
  working_ = count;
  threads_.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i)
    threads_.emplace_back(
        [this, players = i == 0 ? std::move(started) : MatchPlayers()]() mutable { work(std::move(players)); });
}

MatchRunner::~MatchRunner() {
  break_off();
  threads_.clear();
  close(ready_fd_);
}

void MatchRunner::tell() {
  const uint64_t one = 1;
  [[maybe_unused]] const auto written = write(ready_fd_, &one, sizeof one);
}

void MatchRunner::break_off() {
  no_more_ = true;
  stop_.request_stop();
}

FinishedGame MatchRunner::play(int64_t number, MatchPlayers& players) {
  const GameUnderWay counted(playing_);
  const bool first_is_white = number % 2 == 0;
  Player& white = first_is_white ? *players.first : *players.second;
  Player& black = first_is_white ? *players.second : *players.first;
  FinishedGame played =
      play_game(plan_.openings.opening(number / 2), white, black, seed_of_player(plan_.seed, number, Side::kWhite),
                seed_of_player(plan_.seed, number, Side::kBlack), plan_.rules, stop_.get_token());
  played.number = number;
  played.first_is_white = first_is_white;
  return played;
}

void MatchRunner::work(MatchPlayers players) {
  try {
    if (!players.first) players = plan_.make_players();
    while (!no_more_) {
      const int64_t number = next_++;
      if (number >= plan_.games) break;
      FinishedGame played = play(number, players);
      const std::lock_guard lock(mutex_);
      if (rule_.add(played)) no_more_ = true;
      ended_.push_back(std::move(played));
      tell();
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
    no_more_ = true;
  }
  players = {};  // engines are asked to quit before the match counts as over
  --working_;
  tell();
}

std::vector<FinishedGame> MatchRunner::take() {
  uint64_t count = 0;
  [[maybe_unused]] const auto got = read(ready_fd_, &count, sizeof count);
  const std::lock_guard lock(mutex_);
  return std::exchange(ended_, {});
}

std::exception_ptr MatchRunner::error() {
  const std::lock_guard lock(mutex_);
  return error_;
}

bool FailureRule::add(const FinishedGame& game) {
  if (game.broken_off) return false;
  for (const bool first : {true, false}) {
    const Side side = first == game.first_is_white ? Side::kWhite : Side::kBlack;
    int& row = row_[first ? 0 : 1];
    row = game.fault && game.fault->side == side ? row + 1 : 0;
  }
  return std::max(row_[0], row_[1]) >= kInARow;
}

}  // namespace tandem::chess
