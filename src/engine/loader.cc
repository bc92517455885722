#include "engine/loader.h"

#include <algorithm>
#include <chrono>

#include "base/clock.h"
#include "engine/determinism.h"

namespace tandem {

Batch MakeTimes::measured(const std::function<Batch()>& make) {
  constexpr uint64_t kEvery = 8;
  if (batches_.fetch_add(1, std::memory_order_relaxed) % kEvery != 0) return make();
  if (!thread_waits_are_known()) return make();  // sleeping cannot be distinguished from waiting for a core
  const double cpu = thread_cpu_seconds() + thread_wait_seconds(), begin = monotonic_seconds();
  Batch batch = make();
  const double seconds = monotonic_seconds() - begin;
  const double asleep = seconds - (thread_cpu_seconds() + thread_wait_seconds() - cpu);
  made_ns_.fetch_add(static_cast<uint64_t>(seconds * 1e9), std::memory_order_relaxed);
  asleep_ns_.fetch_add(static_cast<uint64_t>(std::clamp(asleep, 0.0, seconds) * 1e9), std::memory_order_relaxed);
  return batch;
}

namespace {

size_t bytes_of(const Batch& batch) {
  size_t bytes = 1;
  for (const at::Tensor& tensor : batch.tensors) bytes += tensor.nbytes();
  return bytes;
}

}  // namespace

Loader::Loader(Make make, Next next, int threads, int prefetch, size_t most_bytes)
    : make_(std::move(make)), next_(std::move(next)), prefetch_(prefetch > 0 ? prefetch : 1), most_bytes_(most_bytes) {
  for (int t = 0; t < threads; ++t) threads_.emplace_back([this] { work(); });
}

Loader::~Loader() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wanted_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Loader::work() {
  prepare_thread();
  std::unique_lock lock(mutex_);
  for (;;) {
    wanted_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (stop_) return;
    const LoadKey key = queue_.front();
    queue_.pop_front();
    lock.unlock();
    Batch batch;
    std::exception_ptr error;
    try {
      batch = make_(key);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (auto it = entries_.find(key); it != entries_.end()) {
      it->second.batch = std::move(batch);
      it->second.error = error;
      it->second.ready = true;
    }
    ready_.notify_all();
  }
}

Batch Loader::get(const LoadKey& key) {
  if (threads_.empty()) return make_(key);
  const auto begin = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  int asked = 0;
  auto ask = [&](const LoadKey& k) {
    if (!entries_.emplace(k, Entry{}).second) return;
    queue_.push_back(k);
    ++asked;
  };
  if (!entries_.contains(key)) {  // the first one, or the loop went elsewhere (another plan, a roll-back)
    entries_.clear();
    queue_.clear();
  }
  ask(key);
  LoadKey ahead = key;
  const size_t fits = most_bytes_ == SIZE_MAX ? prefetch_
                      : largest_ == 0         ? 2  // nobody knows yet
                                              : std::max<size_t>(2, most_bytes_ / largest_);
  for (size_t i = 0; i < std::min(prefetch_, fits); ++i) ask(ahead = next_(ahead));
  if (asked == 1)  // as in all steps but the first: one more at the end, for which one thread is enough to wake
    wanted_.notify_one();
  else if (asked > 1)
    wanted_.notify_all();
  ready_.wait(lock, [&] { return entries_.at(key).ready; });
  Entry entry = std::move(entries_.at(key));
  entries_.erase(key);
  wait_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  lock.unlock();
  if (entry.error) std::rethrow_exception(entry.error);
  largest_ = std::max(largest_, bytes_of(entry.batch));
  return std::move(entry.batch);
}

}  // namespace tandem
