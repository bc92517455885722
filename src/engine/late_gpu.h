// engine/late_gpu.h -- for tests: a GPU whose streams do nothing until they are made to, in whatever order CUDA would
// allow.
//
// Its memory is the host's. Copies read their source when they run, not when they are queued: memory that is written
// too early shows as wrong bytes, as it would on a GPU now and then.
#pragma once

#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "engine/copy_stream.h"
#include "kernels/device.h"

namespace tandem {

// Two streams with events between them.
class LateStreams {
 public:
  using Event = std::shared_ptr<bool>;  // what was recorded has been reached
  enum class First { kWork, kUploads };

  // `ready`: may it run? Null: always.
  void queue_work(std::function<void()> run, std::function<bool()> ready = {}) {
    work_.push_back({std::move(run), std::move(ready)});
  }
  void queue_upload(std::function<void()> run) { uploads_.push_back({std::move(run), {}}); }
  Event record_upload() { return record(uploads_); }
  Event record_work() { return record(work_); }
  void work_waits(const Event& event) { wait(work_, event); }
  void uploads_wait(const Event& event) { wait(uploads_, event); }

  // Runs what can run; `first` as far as it goes before the other moves on by one.
  void run(First first) {
    std::deque<Queued>&one = first == First::kWork ? work_ : uploads_,
    &other = first == First::kWork ? uploads_ : work_;
    do
      while (run_one(one)) {
      }
    while (run_one(other));
  }
  void run_uploads() {
    while (run_one(uploads_)) {
    }
  }
  size_t work_left() const { return work_.size(); }
  size_t uploads_left() const { return uploads_.size(); }

 private:
  struct Queued {
    std::function<void()> run;
    std::function<bool()> ready;
  };
  static bool run_one(std::deque<Queued>& queue) {
    if (queue.empty() || (queue.front().ready && !queue.front().ready())) return false;
    queue.front().run();
    queue.pop_front();
    return true;
  }
  static Event record(std::deque<Queued>& queue) {
    auto event = std::make_shared<bool>(false);
    queue.push_back({[event] { *event = true; }, {}});
    return event;
  }
  static void wait(std::deque<Queued>& queue, const Event& event) {
    queue.push_back({[] {}, [event] { return *event; }});
  }
  std::deque<Queued> work_, uploads_;
};

class LateCopyStream : public CopyStream {
 public:
  explicit LateCopyStream(LateStreams& streams) : streams_(streams) {}
  void upload(void* dst, const void* host, size_t bytes) override {
    streams_.queue_upload([=] { std::memcpy(dst, host, bytes); });
  }
  void record(int slot) override { slots_[slot] = streams_.record_upload(); }
  bool done(int slot) override { return *slots_.at(slot); }
  void work_waits_for(int slot) override { streams_.work_waits(slots_.at(slot)); }
  void uploads_wait_for_work() override { streams_.uploads_wait(streams_.record_work()); }
  void wait() noexcept override { streams_.run_uploads(); }

 private:
  LateStreams& streams_;
  std::map<int, LateStreams::Event> slots_;
};

// The CPU's memory and kernels, with copies that are queued as work.
class LateDevice : public Device {
 public:
  explicit LateDevice(LateStreams& streams) : streams_(streams) {}
  bool is_cuda() const override { return false; }
  void* allocate(size_t bytes) override {
    allocated += bytes;
    return cpu_.allocate(bytes);
  }
  void release(void* memory) noexcept override { cpu_.release(memory); }
  void copy(void* dst, const void* src, size_t bytes) override {
    streams_.queue_work([=] { std::memcpy(dst, src, bytes); });
  }
  void queue_from_host(void* dst, const void* host, size_t bytes) override { copy(dst, host, bytes); }
  void queue_to_host(void* host, const void* src, size_t bytes) override { copy(host, src, bytes); }
  void to_host(void* host, const void* src, size_t bytes) override {
    copy(host, src, bytes);
    wait();
  }
  void from_host(void* dst, const void* host, size_t bytes) override { to_host(dst, host, bytes); }
  void wait() override { streams_.run(LateStreams::First::kWork); }
  bool pin(void* host, size_t bytes) override { return cpu_.pin(host, bytes); }
  void unpin(void* host) noexcept override { cpu_.unpin(host); }
  size_t allocated = 0;

  // At once, as on the CPU:
  void zero(void* m, size_t n) override { cpu_.zero(m, n); }
  void fill_ones(void* m, size_t n) override { cpu_.fill_ones(m, n); }
  void add_in_order(float* o, const float* const* in, int c, int64_t n) override { cpu_.add_in_order(o, in, c, n); }
  void soft_update(float* t, const float* p, float tau, int64_t n) override { cpu_.soft_update(t, p, tau, n); }
  void fill_dropout_mask(float* o, int64_t n, const RandomSource& k, uint64_t f, double d) override {
    cpu_.fill_dropout_mask(o, n, k, f, d);
  }
  void decide_update(UpdateDecision* d, const UpdateParams* p, const float* g, int64_t n, const float* s, int64_t sn,
                     const int64_t* bad, int bads) override {
    cpu_.decide_update(d, p, g, n, s, sn, bad, bads);
  }
  void decide_groups(UpdateDecision* ds, UpdateDecision* d, const UpdateParams* p, const float* g, int64_t n,
                     int groups, const int64_t* bad, int bads) override {
    cpu_.decide_groups(ds, d, p, g, n, groups, bad, bads);
  }
  void adam_update(float* p, const float* g, float* m, float* v, int64_t n, const AdamParams* a,
                   const UpdateDecision* d) override {
    cpu_.adam_update(p, g, m, v, n, a, d);
  }
  void adam_update(float* p, const float* g, float* m, float* v, const UpdateSegment* s, int c, int64_t n,
                   const UpdateParams* u, const UpdateDecision* d, const TargetUpdate& t) override {
    cpu_.adam_update(p, g, m, v, s, c, n, u, d, t);
  }
  void sgd_update(float* p, const float* g, float* v, int64_t n, const SgdParams* s, const UpdateDecision* d) override {
    cpu_.sgd_update(p, g, v, n, s, d);
  }
  void soft_update(float* t, const float* p, float tau, int64_t n, const UpdateDecision* d) override {
    cpu_.soft_update(t, p, tau, n, d);
  }
  void find_nonfinite(int64_t* i, const float* x, int64_t n) override { cpu_.find_nonfinite(i, x, n); }
  double sum_of_squares(const float* x, int64_t n) override { return cpu_.sum_of_squares(x, n); }
  int64_t first_nonfinite(const float* x, int64_t n) override { return cpu_.first_nonfinite(x, n); }
  uint64_t state_hash(const void* data, int64_t n) override { return cpu_.state_hash(data, n); }

 private:
  LateStreams& streams_;
  Device& cpu_ = cpu_device();
};

}  // namespace tandem
