// engine/gpu_phase.h -- one phase on a GPU: its input staging, its outputs and its CUDA graphs.
//
// Inputs lie in one block of GPU memory, filled by one copy per step; outputs in another, read by one copy. So all work
// of a phase has fixed addresses: it runs eagerly in the first steps, is then captured once, and replayed at
// every step. With one worker the update is part of the graph.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/gpu_device.h"
#include "kernels/random_source.h"
#include "kernels/update_decision.h"
#include "reduce/combine.h"

namespace tandem {

// Memory on the GPU with a twin in pinned host memory.
class Mirror {
 public:
  Mirror(size_t bytes, int host_copies = 1);
  ~Mirror();
  Mirror(const Mirror&) = delete;
  size_t size() const { return bytes_; }
  std::byte* on_gpu() const { return gpu_; }
  std::byte* on_host(int copy = 0) { return host_.get() + static_cast<size_t>(copy) * bytes_; }
  void queue_up(int copy) { queue_up(copy, bytes_); }
  void queue_up(int copy, size_t first_bytes) { device().queue_from_host(gpu_, on_host(copy), first_bytes); }
  void queue_down() { device().queue_to_host(on_host(), gpu_, bytes_); }

 private:
  size_t bytes_;
  std::byte* gpu_;
  std::unique_ptr<std::byte[], decltype(&std::free)> host_;  // whole pages: two mirrors never share one
};

// What a phase reports: the index of a NaN and integer sums of each shard, and the update decision.
class PhaseOutputs {
 public:
  PhaseOutputs(int shards, int counts, int floats);
  void queue_clear();
  // Fetches everything; `floats`: the recipe's sums in the total, on the GPU, or null.
  void queue_fetch(const float* floats);

  std::span<int64_t> bad_on_gpu() const;
  int64_t* bad_on_gpu(int index) const { return bad_on_gpu().data() + index; }
  at::Tensor counts_on_gpu(int index) const;
  UpdateDecision* decision_on_gpu() const { return reinterpret_cast<UpdateDecision*>(memory_.on_gpu()); }

  // After queue_fetch() and a wait:
  const UpdateDecision& decision() { return *reinterpret_cast<UpdateDecision*>(memory_.on_host()); }
  int64_t bad(int index) { return words()[index]; }
  std::span<const int64_t> counts(int index) { return words().subspan(shards_ + index * counts_, counts_); }
  std::span<const float> floats();

 private:
  std::span<int64_t> words();
  size_t shards_, counts_, floats_;
  Mirror memory_;
};

// The inputs of all micro-batches of all shards of one phase, and the parameters of the update.
class InputStaging {
 public:
  // Sizes are those of `first`, the inputs of one micro-batch; every micro-batch has the same.
  InputStaging(int micro_batches, const std::vector<at::Tensor>& first);
  bool fits(const std::vector<at::Tensor>& tensors) const;  // the same sizes, and in host memory
  void put(int copy, int micro_batch, const RandomKey& key, const std::vector<at::Tensor>& tensors);
  void put(int copy, const UpdateParams& params);
  void queue_up(int copy) { memory_.queue_up(copy); }
  void queue_up_params(int copy);  // of the update, alone

  const RandomKey* key(int micro_batch) const;
  const UpdateParams* params() const { return reinterpret_cast<const UpdateParams*>(memory_.on_gpu()); }
  at::Tensor loss_scale() const;
  const std::vector<at::Tensor>& tensors(int micro_batch) const { return tensors_[micro_batch]; }

 private:
  size_t tensor_offset(int micro_batch) const {
    return keys_end_ + static_cast<size_t>(micro_batch) * micro_batch_bytes_;
  }
  int micro_batches_;
  size_t keys_end_, micro_batch_bytes_;
  std::vector<size_t> offsets_;  // of a micro-batch's tensors
  Mirror memory_;
  std::vector<std::vector<at::Tensor>> tensors_;  // on the GPU
};

// Why nothing is to be captured, by the environment's variables: CUDA_LAUNCH_BLOCKING=1, TANDEM_GRAPHS=off. Or "".
std::string eager_asked_for();

struct GpuPhase {
  GpuPhase(int shards, int counts, int floats) : outputs(shards, counts, floats) {}
  PhaseOutputs outputs;
  std::unique_ptr<InputStaging> staging;
  std::unique_ptr<CudaGraph> shards_graph, step_graph;  // the second includes the update
  std::unique_ptr<CudaGraph> update_graph;              // the update alone, of a total at `total`
  bool update_refused = false;
  const float* total = nullptr;
  Partials partials;                              // where a graph leaves its sums
  std::vector<std::vector<int64_t>> host_counts;  // what run() counted on the host during capture
  int branches = 1;                               // shards that run side by side in the graph
  bool step_agreed = false;
  int agreed = 0;             // times that the graph gave the bits of the eager run
  bool only_batches = false;  // all that it needs from the host
  std::string why_eager;      // not empty: it is not captured
  int64_t staged_step = -1;   // whose inputs lie in host copy staged_step % 2
};

}  // namespace tandem
