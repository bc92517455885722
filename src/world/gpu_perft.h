// world/gpu_perft.h -- counts the games that begin in a position on a GPU: exact, in 64 bits.
//
// Breadth-first in parts: all positions of a ply are made at once as long as there is room; then a part of them is
// followed to the end before the next one. A GPU so has millions of independent positions at a time, in an order in
// which neighbours are alike, and its memory stays bounded at any depth. (A thread that went depth-first on its own
// would wait for its warp: one lane makes a move while another lists some.)
//
// The first ply is made by the host and the last is only counted.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/device.h"
#include "world/chess/perft.h"
#include "world/cuda_chess.h"

namespace tandem {

// In numbers of positions; the defaults take 270 MB, and 34 MB for each ply beyond the third.
struct PerftRoom {
  int64_t last_ply = int64_t{1} << 25;  // 8 bytes each
  int64_t ply = int64_t{1} << 19;       // 64 bytes each
};

class GpuPerft {
 public:
  // `device` runs the kernels, on `stream`. Throws std::bad_alloc where the GPU has not so much memory.
  GpuPerft(Device& device, const ChessKernels& kernels, CUstream_st* stream, const PerftRoom& room = {});
  ~GpuPerft();
  GpuPerft(const GpuPerft&) = delete;

  // For each first move, in the order of legal_moves(); depth at least 1.
  std::vector<chess::PerftMove> divided(const chess::Position& position, int depth);

 private:
  void count(int64_t positions, int plies, size_t level);
  int64_t list(const chess::Position* parents, int64_t& n, int64_t room);
  chess::Position* level(size_t number);

  Device& device_;
  const ChessKernels& kernels_;
  CUstream_st* stream_;
  PerftRoom room_;
  std::vector<chess::Position*> levels_;  // [n]: positions after n + 1 plies, a part of them
  PerftChild* children_ = nullptr;
  unsigned long long *total_ = nullptr, *sums_ = nullptr;
};

}  // namespace tandem
