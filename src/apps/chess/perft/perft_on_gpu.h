// apps/chess/perft/perft_on_gpu.h -- positions counted by this program's worker, in a process of its own that alone
// sees the GPU.
#pragma once

#include <string>
#include <vector>

#include "command/context.h"
#include "world/chess/perft.h"

namespace tandem {

struct PerftOnGpu {
  std::vector<chess::PerftMove> moves;  // in the order of legal_moves()
  double seconds = 0;                   // of counting, without the worker's start
  std::string gpu;                      // "NVIDIA H200"
};

// `gpu` is what parse_devices() makes of cuda:0; depth at least 1. Throws Error; what the worker has to say of it
// stands on stderr.
PerftOnGpu perft_on_gpu(const CliContext& context, const DeviceSpec& gpu, const chess::Position& position, int depth);

}  // namespace tandem
