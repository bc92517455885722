#include "apps/chess/play/uci_search.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/errors.h"
#include "world/chess/notation.h"

namespace tandem::chess {

UciSearch::UciSearch(const PlayerChoice& choice, UciOutput& output)
    : choice_(choice), output_(output), thread_([this] { work(); }) {}

UciSearch::~UciSearch() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
    over_stop_.request_stop();
    for (Job& job : jobs_) job.abandoned = job.stop.request_stop();  // where `stop` came first, the GUI waits for it
  }
  changed_.notify_all();
  thread_.join();
}

void UciSearch::ready(const UciSetup& setup) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back({.setup = setup});
  }
  changed_.notify_all();
}

void UciSearch::go(const UciSetup& setup, const Game& game, const ThinkRequest& request, bool ponder) {
  {
    const std::lock_guard lock(mutex_);
    if (jobs_.size() > 1) forget_history(jobs_.back());
    Job& job = jobs_.emplace_back();
    job.is_go = true;
    job.setup = setup;
    job.game = game;
    job.request = request;
    job.ponder = ponder;
    job.began = std::chrono::steady_clock::now();
  }
  changed_.notify_all();
}

// Of a search that was stopped before it began nothing is wanted but a legal move.
void UciSearch::forget_history(Job& job) {
  if (job.is_go && job.stop.stop_requested()) job.game = Game(job.game.position());
}

bool UciSearch::full() const {
  const std::lock_guard lock(mutex_);
  return jobs_.size() >= kMostJobs;
}

void UciSearch::stop() {
  {
    const std::lock_guard lock(mutex_);
    for (Job& job : jobs_) job.stop.request_stop();
  }
  changed_.notify_all();
}

void UciSearch::ponder_hit() {
  {
    const std::lock_guard lock(mutex_);
    for (Job& job : jobs_) job.ponder = false;
  }
  changed_.notify_all();
}

bool UciSearch::thinking() const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(jobs_, [](const Job& job) { return job.is_go && !job.answered; });
}

void UciSearch::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return over_ || !jobs_.empty(); });
    if (over_) return;
    Job& job = jobs_.front();  // stays where it is: a deque moves nothing when another is added behind
    lock.unlock();
    answer(job);
    lock.lock();
    jobs_.pop_front();
  }
}

void UciSearch::answer(Job& job) {
  Move move = Move();
  try {
    prepare(job.setup);
    if (job.is_go) move = think(job);
  } catch (const Error& error) {
    if (over_stop_.stop_requested()) return;  // nobody waits for an answer
    output_.say(fmt::format("error: {}; {}; {}", error.what(), error.why(), error.todo()));
    player_ = nullptr;  // the next one begins anew
  }
  if (!job.is_go) {
    output_.line("readyok");
    return;
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&job] { return job.stop.stop_requested() || !(job.ponder || job.request.infinite); });
  const bool abandoned = job.abandoned;
  job.answered = true;
  lock.unlock();
  if (!abandoned) output_.line(bestmove_line(move));
}

void UciSearch::prepare(const UciSetup& setup) {
  const bool other_settings = !player_ || current_.settings != setup.settings;
  if (!other_settings && current_.game_number == setup.game_number && current_.seed == setup.seed) return;
  if (other_settings) {
    player_ = nullptr;
    player_ = choice_.make(setup.settings);
  }
  current_ = setup;
  player_->begin_game(setup.seed, over_stop_.get_token());
  output_.say(fmt::format("{}, a new game, seed {}", player_->name(), setup.seed));
  for (const std::string& note : player_->notes()) output_.say(note);
}

Move UciSearch::think(Job& job) {
  const Position& position = job.game.position();
  if (count_legal_moves(position) == 0) {
    const Score score = in_check(position) ? Score{.mate_in = 0} : Score{};
    output_.line(info_line({.score = score}, {}));
    return Move();
  }
  Thought last;
  const auto since = [&job] { return std::chrono::steady_clock::now() - job.began; };
  job.request.stop = job.stop.get_token();
  job.request.report = [&](const Thought& thought) {
    last = thought;
    output_.line(info_line(thought, since()));
  };
  const Thought thought = player_->think(job.game, job.request);
  if (!is_legal(position, thought.move))
    throw PlayerFault(PlayerFault::Kind::kIllegalMove,
                      fmt::format("{} answered {}", player_->name(), uci_of(thought.move)),
                      "that is no legal move here", "report it with the position");
  if (last.move != thought.move || last.depth != thought.depth) output_.line(info_line(thought, since()));
  return thought.move;
}

}  // namespace tandem::chess
