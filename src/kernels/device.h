// kernels/device.h -- where a job's tensors live and what can be done to them there: host memory, or one GPU's.
//
// A worker drives one device, so a process has one: device(). Calls queue work in order; those that return a value, or
// touch host memory, wait for it. The CPU and the CUDA implementation give the same bits (tests/gpu/kernel_twins.cu).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/random_source.h"
#include "kernels/update_decision.h"

namespace tandem {

class Device {
 public:
  virtual ~Device() = default;
  virtual bool is_cuda() const = 0;

  // ---- memory; pointers are to this device's unless they are called host ----
  virtual void* allocate(size_t bytes) = 0;  // aligned to 64 bytes or more; throws std::bad_alloc
  virtual void release(void* memory) noexcept = 0;
  virtual void zero(void* memory, size_t bytes) = 0;
  virtual void fill_ones(void* memory, size_t bytes) = 0;  // every bit: integers become -1
  virtual void copy(void* dst, const void* src, size_t bytes) = 0;
  virtual void to_host(void* host, const void* src, size_t bytes) = 0;    // done when the call returns
  virtual void from_host(void* dst, const void* host, size_t bytes) = 0;  // `host` may change after the call
  // The same, queued: the host memory, pinned, is read or written by the time of wait().
  virtual void queue_to_host(void* host, const void* src, size_t bytes) = 0;
  virtual void queue_from_host(void* dst, const void* host, size_t bytes) = 0;
  // Makes copies to and from this host memory fast, where that can be done; unpin() comes before it is freed. False: it
  // was refused (a limit on locked memory), and the memory serves as it is.
  virtual bool pin(void* host, size_t bytes) = 0;
  virtual void unpin(void* host) noexcept = 0;
  virtual void wait() = 0;  // until everything queued is done

  // ---- the kernels of sums.h, optimizers.h, norms.h, state_hash.h, random_fill.h ----
  virtual void add_in_order(float* out, const float* const* inputs, int count, int64_t n) = 0;
  virtual void soft_update(float* target, const float* p, float tau, int64_t n) = 0;
  virtual void fill_dropout_mask(float* out, int64_t n, const RandomSource& key, uint64_t first, double drop) = 0;

  // ---- an update: its parameters and its decision lie in this device's memory, and no call waits for them ----
  // `bad`: for each shard, what find_nonfinite() wrote.
  virtual void decide_update(UpdateDecision* decision, const UpdateParams* params, const float* gradient, int64_t n,
                             const float* statistics, int64_t statistic_count, const int64_t* bad, int bad_count) = 0;
  // `groups` of `n` floats each, contiguous, each with its own decision (decide_batched()); *decision is for all.
  virtual void decide_groups(UpdateDecision* decisions, UpdateDecision* decision, const UpdateParams* params,
                             const float* gradient, int64_t n, int groups, const int64_t* bad, int bad_count) = 0;
  virtual void adam_update(float* p, const float* g, float* m, float* v, int64_t n, const AdamParams* params,
                           const UpdateDecision* decision) = 0;
  // All weights and the target network's in one call; `segments` [count] cover them and lie in this device's memory.
  virtual void adam_update(float* p, const float* g, float* m, float* v, const UpdateSegment* segments, int count,
                           int64_t n, const UpdateParams* params, const UpdateDecision* decisions,
                           const TargetUpdate& target) = 0;
  virtual void sgd_update(float* p, const float* g, float* velocity, int64_t n, const SgdParams* params,
                          const UpdateDecision* decision) = 0;
  virtual void soft_update(float* target, const float* p, float tau, int64_t n, const UpdateDecision* decision) = 0;
  // *index is -1 before the call; it becomes that of the first NaN or Inf.
  virtual void find_nonfinite(int64_t* index, const float* x, int64_t n) = 0;

  // ---- results on the host: these wait ----
  virtual double sum_of_squares(const float* x, int64_t n) = 0;
  virtual int64_t first_nonfinite(const float* x, int64_t n) = 0;
  virtual uint64_t state_hash(const void* data, int64_t bytes) = 0;
};

Device& cpu_device();
Device& device();                 // this process's; the CPU until use_device()
void use_device(Device& chosen);  // before anything is built on it; it must outlive everything

}  // namespace tandem
