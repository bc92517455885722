// reduce/gloo_guard.h -- two parts of GlooCombine: memory for vectors, and an end to waits that nobody will answer.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <new>
#include <thread>

#include "reduce/watch.h"

namespace tandem {

// Memory that starts at a cache line; not initialised, as everything in it is written before it is read.
class Floats {
 public:
  explicit Floats(int64_t n) : size_(n) {
    data_ = static_cast<float*>(std::aligned_alloc(64, (static_cast<size_t>(n) * 4 + 64) / 64 * 64));
    if (!data_) throw std::bad_alloc();
  }
  ~Floats() { std::free(data_); }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;
  float* data() const { return data_; }
  size_t bytes() const { return static_cast<size_t>(size_) * 4; }

 private:
  int64_t size_;
  float* data_;
};

// Asks the watch while somebody waits, and ends the wait if the answer is yes.
class Guard {
 public:
  Guard(const Watch& watch, uint64_t generation) : watch_(watch), generation_(generation), thread_([this] { run(); }) {}
  ~Guard() {
    {
      std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

  // wait() is the buffer's waitSend or waitRecv; abort() makes it return false.
  void during(int64_t sequence, const std::function<bool()>& wait, const std::function<void()>& abort) {
    {
      std::lock_guard lock(mutex_);
      abort_ = &abort;
      sequence_ = sequence;
    }
    struct Leave {
      Guard& guard;
      ~Leave() {
        std::lock_guard lock(guard.mutex_);
        guard.abort_ = nullptr;
      }
    } leave{*this};
    if (!wait()) throw MembersChanged();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, std::chrono::milliseconds(20), [this] { return ended_; }))
      if (abort_ && watch_.abandoned(generation_, sequence_)) (*abort_)();
  }

  const Watch& watch_;
  uint64_t generation_;
  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* abort_ = nullptr;
  int64_t sequence_ = 0;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace tandem
