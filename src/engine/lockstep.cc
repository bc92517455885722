#include "engine/lockstep.h"

#include <algorithm>
#include <stdexcept>
#include <thread>

#include "engine/determinism.h"

namespace tandem {
namespace {

thread_local int this_member = -1;

struct Ended : std::exception {};  // thrown through a body whose neighbour failed

}  // namespace

void Lockstep::run(std::span<const int> shards, const std::function<void(int)>& body,
                   const std::function<void(int)>& turn) {
  const int members = static_cast<int>(shards.size());
  shards_.assign(shards.begin(), shards.end());
  where_.assign(members, Where::kRunning);
  values_.assign(members, {});
  turn_ = turn;
  running_ = 0;
  error_ = nullptr;
  std::vector<std::thread> threads;
  for (int i = 0; i < members; ++i) {
    threads.emplace_back([this, i, &body] {
      prepare_thread();
      this_member = i;
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return running_ == i; });
      try {
        if (error_) throw Ended{};
        lock.unlock();
        turn_(i);
        body(i);
        lock.lock();
      } catch (const Ended&) {
        if (!lock.owns_lock()) lock.lock();
      } catch (...) {
        if (!lock.owns_lock()) lock.lock();
        if (!error_) error_ = std::current_exception();
      }
      where_[i] = Where::kDone;
      pass_turn(lock);
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (error_) std::rethrow_exception(error_);
}

void Lockstep::all_reduce(std::span<double> values) {
  const int me = this_member;
  std::unique_lock lock(mutex_);
  values_[me] = values;
  where_[me] = Where::kWaiting;
  pass_turn(lock);
  changed_.wait(lock, [&] { return running_ == me; });
  if (error_) throw Ended{};
  lock.unlock();
  turn_(me);
}

// The turn goes to the next member that can run; when all wait, their values are summed first.
void Lockstep::pass_turn(std::unique_lock<std::mutex>&) {
  const int members = static_cast<int>(where_.size());
  auto next_with = [&](Where where) {
    for (int k = 1; k <= members; ++k)
      if (const int i = (running_ + k) % members; where_[i] == where) return i;
    return -1;
  };
  int next = next_with(Where::kRunning);
  if (next < 0 || error_) {
    const auto waiting = std::count(where_.begin(), where_.end(), Where::kWaiting);
    if (waiting > 0 && waiting < members && !error_)
      error_ = std::make_exception_ptr(std::logic_error("shards in lock-step called all_reduce() unequally often"));
    if (waiting == members && !error_) sum_(shards_, values_);
    if (waiting > 0) {
      for (Where& w : where_)
        if (w == Where::kWaiting) w = Where::kRunning;
      running_ = members - 1;
      next = next_with(Where::kRunning);
    }
  }
  running_ = next;
  changed_.notify_all();
}

}  // namespace tandem
