#include "kernels/device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "kernels/cpu/norms.h"
#include "kernels/cpu/random_fill.h"
#include "kernels/cpu/state_hash.h"
#include "kernels/cpu/sums.h"

namespace tandem {
namespace {

class CpuDevice : public Device {
 public:
  bool is_cuda() const override { return false; }

  void* allocate(size_t bytes) override {
    void* memory = std::aligned_alloc(64, (bytes + 64) / 64 * 64);
    if (!memory) throw std::bad_alloc();
    return memory;
  }
  void release(void* memory) noexcept override { std::free(memory); }
  void zero(void* memory, size_t bytes) override {
    if (bytes) std::memset(memory, 0, bytes);
  }
  void fill_ones(void* memory, size_t bytes) override {
    if (bytes) std::memset(memory, 0xFF, bytes);
  }
  void copy(void* dst, const void* src, size_t bytes) override {
    if (bytes) std::memcpy(dst, src, bytes);
  }
  void to_host(void* host, const void* src, size_t bytes) override { copy(host, src, bytes); }
  void from_host(void* dst, const void* host, size_t bytes) override { copy(dst, host, bytes); }
  void queue_to_host(void* host, const void* src, size_t bytes) override { copy(host, src, bytes); }
  void queue_from_host(void* dst, const void* host, size_t bytes) override { copy(dst, host, bytes); }
  bool pin(void*, size_t) override { return true; }
  void unpin(void*) noexcept override {}
  void wait() override {}

  void add_in_order(float* out, const float* const* inputs, int count, int64_t n) override {
    tandem::add_in_order(out, inputs, count, n);
  }
  void soft_update(float* target, const float* p, float tau, int64_t n) override {
    tandem::soft_update(target, p, tau, n);
  }
  void fill_dropout_mask(float* out, int64_t n, const RandomSource& key, uint64_t first, double drop) override {
    tandem::fill_dropout_mask(out, n, key, first, drop);
  }

  void decide_update(UpdateDecision* decision, const UpdateParams* params, const float* gradient, int64_t n,
                     const float* statistics, int64_t statistic_count, const int64_t* bad, int bad_count) override {
    const bool flagged = params->flag != 0 || std::any_of(bad, bad + bad_count, [](int64_t i) { return i >= 0; });
    const double squares = flagged ? 0 : tandem::sum_of_squares(gradient, n);  // it will be skipped: one pass saved
    *decision = tandem::decide_update(squares, tandem::all_finite(statistics, statistic_count), flagged, *params);
  }
  void adam_update(float* p, const float* g, float* m, float* v, int64_t n, const AdamParams* params,
                   const UpdateDecision* decision) override {
    if (!decision->skip) tandem::adam_update(p, g, m, v, n, *params, decision->scale);
  }
  void decide_groups(UpdateDecision* decisions, UpdateDecision* decision, const UpdateParams* params,
                     const float* gradient, int64_t n, int groups, const int64_t* bad, int bad_count) override {
    for (int g = 0; g < groups; ++g)
      decide_update(decisions + g, params, gradient + g * n, n, nullptr, 0, bad, bad_count);
    *decision = decide_batched(decisions, groups);
  }
  void adam_update(float* p, const float* g, float* m, float* v, const UpdateSegment* segments, int count, int64_t n,
                   const UpdateParams* params, const UpdateDecision* decisions, const TargetUpdate& target) override {
    for (int64_t i = 0, begin = 0; i < count; begin = segments[i++].end) {
      const int64_t length = segments[i].end - begin;
      const UpdateDecision* const decision = decisions + segments[i].group;
      adam_update(p + begin, g + begin, m + begin, v + begin, length, &params->adam[segments[i].decays], decision);
      if (target.weights) soft_update(target.weights + begin, p + begin, target.rate, length, decision);
    }
  }
  void sgd_update(float* p, const float* g, float* velocity, int64_t n, const SgdParams* params,
                  const UpdateDecision* decision) override {
    if (!decision->skip) tandem::sgd_update(p, g, velocity, n, *params, decision->scale);
  }
  void soft_update(float* target, const float* p, float tau, int64_t n, const UpdateDecision* decision) override {
    if (!decision->skip) tandem::soft_update(target, p, tau, n);
  }
  void find_nonfinite(int64_t* index, const float* x, int64_t n) override { *index = tandem::first_nonfinite(x, n); }

  double sum_of_squares(const float* x, int64_t n) override { return tandem::sum_of_squares(x, n); }
  int64_t first_nonfinite(const float* x, int64_t n) override { return tandem::first_nonfinite(x, n); }
  uint64_t state_hash(const void* data, int64_t bytes) override { return tandem::state_hash(data, bytes); }
};

Device* chosen_device = nullptr;

}  // namespace

Device& cpu_device() {
  static CpuDevice cpu;
  return cpu;
}

Device& device() { return chosen_device ? *chosen_device : cpu_device(); }

void use_device(Device& chosen) { chosen_device = &chosen; }

}  // namespace tandem
