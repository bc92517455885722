// world/cuda_chess_perft.cu -- kernels of cuda_chess_perft.h.
//
// A thread has one parent, to list its moves, or one child, to make its move and count what follows. Children of one
// parent stand together: the lanes of a warp read one or two parents and have nearly the same board, so that their
// loops over pieces are of one length. A child is 8 bytes until it is needed, and a last one is never written at all.
#include "kernels/gpu/intrinsics.h"
#include "world/chess/move_generator.h"
#include "world/chess_each_move.h"
#include "world/chess_gpu_sliders.h"
#include "world/chess_mover_view.h"
#include "world/cuda_chess_perft.h"

namespace tandem::cuda {
namespace {

using namespace chess;

constexpr int kPerftThreads = 128;
constexpr int kRounds = 8;  // children of a thread in count_after: fewer atomic additions
constexpr unsigned kWholeWarp = 0xFFFFFFFF;

unsigned perft_blocks(int64_t n, int64_t items_of_block) {
  return static_cast<unsigned>((n + items_of_block - 1) / items_of_block);
}

struct PerftChildren {
  PerftChild* next;
  uint32_t parent;
  TANDEM_HD void take(Square from, Square to, MoveKind kind) { *next++ = {parent, Move(from, to, kind).bits()}; }
};

__device__ Position after_child(const Position* parents, const PerftChild& child) {
  Position p = parents[child.parent];
  make_move_of<Side::kWhite, GpuSliders, false>(p, Move::from_bits(static_cast<uint16_t>(child.move)));
  return colours_exchanged(p);
}

// Counts first, for a warp takes its room in the list by one atomic addition.
__global__ void __launch_bounds__(kPerftThreads) list_children(const Position* parents, int64_t n, PerftChild* children,
                                                               int64_t capacity, unsigned long long* total) {
  const int64_t parent = int64_t{blockIdx.x} * kPerftThreads + threadIdx.x;
  const auto lane = static_cast<int>(threadIdx.x % 32);
  Position p;
  int moves = 0;
  if (parent < n) {
    p = parents[parent];
    CountSink count;
    generate_moves<Side::kWhite, GpuSliders>(p, count);
    moves = count.moves;
  }
  int up_to_here = moves;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const int before = __shfl_up_sync(kWholeWarp, up_to_here, distance);
    if (lane >= distance) up_to_here += before;
  }
  const int of_warp = __shfl_sync(kWholeWarp, up_to_here, 31);
  unsigned long long first = 0;
  if (lane == 0) first = atomicAdd(total, static_cast<unsigned long long>(of_warp));
  first = __shfl_sync(kWholeWarp, first, 0);
  if (moves == 0 || first + of_warp > static_cast<unsigned long long>(capacity)) return;
  PerftChildren list{children + first + (up_to_here - moves), static_cast<uint32_t>(parent)};
  EachMove<PerftChildren> sink{list};
  generate_moves<Side::kWhite, GpuSliders>(p, sink);
}

__global__ void __launch_bounds__(kPerftThreads)
    make_children(const Position* parents, const PerftChild* children, int64_t n, Position* made) {
  const int64_t i = int64_t{blockIdx.x} * kPerftThreads + threadIdx.x;
  if (i < n) made[i] = after_child(parents, children[i]);
}

// A warp has a range of its own, so that the root move seldom changes: a thread adds up until it does.
__global__ void __launch_bounds__(kPerftThreads)
    count_after(const Position* parents, const PerftChild* children, int64_t n, unsigned long long* sums) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const int64_t warp = (int64_t{blockIdx.x} * kPerftThreads + threadIdx.x) / 32;
  uint32_t sum = 0, root = 0;
  for (int round = 0; round < kRounds; ++round) {
    const int64_t i = (warp * kRounds + round) * 32 + lane;
    if (i >= n) break;
    const Position p = after_child(parents, children[i]);
    CountSink count;
    generate_moves<Side::kWhite, GpuSliders>(p, count);
    if (const auto mine = static_cast<uint32_t>(p.hash); mine != root) {
      if (sum) atomicAdd(sums + root, static_cast<unsigned long long>(sum));
      root = mine;
      sum = 0;
    }
    sum += static_cast<uint32_t>(count.moves);
  }
  const uint32_t root_of_first = __shfl_sync(kWholeWarp, root, 0);
  if (__ballot_sync(kWholeWarp, sum == 0 || root == root_of_first) == kWholeWarp) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(kWholeWarp, sum, distance);
    if (lane != 0) return;
  }
  if (sum) atomicAdd(sums + root, static_cast<unsigned long long>(sum));
}

}  // namespace

void perft_list(const Position* parents, int64_t n, PerftChild* children, int64_t capacity, unsigned long long* total,
                CUstream_st* stream) {
  if (n < 1) return;
  TANDEM_LAUNCH("perft list", list_children, dim3(perft_blocks(n, kPerftThreads)), dim3(kPerftThreads), stream, parents,
                n, children, capacity, total);
}

void perft_make(const Position* parents, const PerftChild* children, int64_t n, Position* made, CUstream_st* stream) {
  if (n < 1) return;
  TANDEM_LAUNCH("perft make", make_children, dim3(perft_blocks(n, kPerftThreads)), dim3(kPerftThreads), stream, parents,
                children, n, made);
}

void perft_count(const Position* parents, const PerftChild* children, int64_t n, unsigned long long* sums,
                 CUstream_st* stream) {
  if (n < 1) return;
  TANDEM_LAUNCH("perft count", count_after, dim3(perft_blocks(n, int64_t{kPerftThreads} * kRounds)),
                dim3(kPerftThreads), stream, parents, children, n, sums);
}

}  // namespace tandem::cuda
