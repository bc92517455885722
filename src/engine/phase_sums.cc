#include "engine/phase_sums.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "nn/here.h"

namespace tandem {
namespace {

class HostSums : public PhaseSums {
 public:
  HostSums(int shards, Device& device) : device_(device), bad_(static_cast<size_t>(shards), -1) {}
  void begin() override { std::ranges::fill(bad_, -1); }
  void put_floats(std::span<const float> host, std::span<float> tail, bool) override {
    std::ranges::copy(host, tail.begin());
  }
  void find_nonfinite(int index, std::span<const float> vector) override {
    bad_[static_cast<size_t>(index)] = device_.first_nonfinite(vector.data(), static_cast<int64_t>(vector.size()));
  }
  int64_t bad(int index) override { return bad_[static_cast<size_t>(index)]; }

 private:
  Device& device_;
  std::vector<int64_t> bad_;
};

class GpuSums : public PhaseSums {
 public:
  GpuSums(int shards, const Phase& phase, Device& device)
      : device_(device),
        has_floats_(phase.floats > 0),
        has_counts_(phase.counts > 0),
        outputs_(shards, phase.counts, phase.floats, phase.counts + phase.maxima + 2) {}  // the flag, the request
  void begin() override { outputs_.queue_clear(); }
  at::Tensor floats(std::span<float> tail) override {
    return has_floats_ ? at::from_blob(tail.data(), {static_cast<int64_t>(tail.size())}, here()) : at::Tensor();
  }
  at::Tensor counts_to(int index) override { return has_counts_ ? outputs_.counts_on_gpu(index) : at::Tensor(); }
  void put_floats(std::span<const float> host, std::span<float> tail, bool capturing) override {
    if (std::ranges::none_of(host, [](float x) { return x != 0; })) return;
    if (capturing) throw std::runtime_error("its run() adds up context.floats on the host; context.add() would do");
    const at::Tensor there = at::from_blob(const_cast<float*>(host.data()), {static_cast<int64_t>(host.size())});
    floats(tail).add_(here(there));
  }
  void find_nonfinite(int index, std::span<const float> vector) override {
    device_.find_nonfinite(outputs_.bad_on_gpu(index), vector.data(), static_cast<int64_t>(vector.size()));
  }
  void queue_fetch() override { outputs_.queue_fetch(nullptr); }
  int64_t bad(int index) override { return outputs_.bad(index); }
  std::span<const int64_t> counts(int index) override { return outputs_.counts(index); }
  PhaseOutputs* outputs() override { return &outputs_; }

 private:
  Device& device_;
  bool has_floats_, has_counts_;
  PhaseOutputs outputs_;
};

}  // namespace

std::unique_ptr<PhaseSums> make_host_sums(int shards, Device& device) {
  return std::make_unique<HostSums>(shards, device);
}

std::unique_ptr<PhaseSums> make_gpu_sums(int shards, const Phase& phase, Device& device) {
  return std::make_unique<GpuSums>(shards, phase, device);
}

}  // namespace tandem
