// engine/gpu_phase.h -- one phase on a GPU: its input staging, its outputs and its CUDA graphs.
//
// Inputs lie in one block of GPU memory, filled by one copy per step; outputs in another, read by one copy. So all work
// of a phase has fixed addresses: it runs eagerly in the first steps, is then captured once, and replayed at
// every step. With one worker the update is part of the graph.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/gpu_device.h"
#include "engine/input_staging.h"
#include "engine/phase_outputs.h"
#include "reduce/combine.h"

namespace tandem {

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
