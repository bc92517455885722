#include "world/gpu_perft.h"

#include <algorithm>

#include "world/chess/moves.h"
#include "world/chess_mover_view.h"

namespace tandem {
namespace {

using namespace chess;

constexpr int64_t kExpectedMoves = 64;  // of a position: a part is chosen so that its children find room

}  // namespace

GpuPerft::GpuPerft(Device& device, const ChessKernels& kernels, CUstream_st* stream, const PerftRoom& room)
    : device_(device), kernels_(kernels), stream_(stream), room_(room) {
  room_.ply = std::max<int64_t>(room_.ply, kMostMoves);
  room_.last_ply = std::max(room_.last_ply, room_.ply);
}

GpuPerft::~GpuPerft() {
  for (Position* positions : levels_) device_.release(positions);
  device_.release(children_);
  device_.release(total_);
  device_.release(sums_);
}

std::vector<PerftMove> GpuPerft::divided(const Position& position, int depth) {
  MoveList moves;
  legal_moves(position, moves);
  std::vector<PerftMove> result;
  std::vector<Position> first_ply;
  for (const Move move : moves) {
    result.push_back({move, 1});
    Position made = after(position, move);
    made = seen_by_mover(made);
    made.hash = first_ply.size();
    first_ply.push_back(made);
  }
  if (depth < 2 || moves.size == 0) return result;
  if (depth == 2) {  // too few to be worth a launch
    for (PerftMove& one : result) one.nodes = static_cast<uint64_t>(count_legal_moves(after(position, one.move)));
    return result;
  }
  if (!sums_) {
    sums_ = static_cast<unsigned long long*>(device_.allocate(kMostMoves * sizeof(unsigned long long)));
    total_ = static_cast<unsigned long long*>(device_.allocate(sizeof(unsigned long long)));
    children_ = static_cast<PerftChild*>(device_.allocate(static_cast<size_t>(room_.last_ply) * sizeof(PerftChild)));
  }
  device_.zero(sums_, kMostMoves * sizeof(unsigned long long));
  device_.from_host(level(0), first_ply.data(), first_ply.size() * sizeof(Position));
  count(static_cast<int64_t>(first_ply.size()), depth - 1, 0);
  std::vector<unsigned long long> sums(first_ply.size());
  device_.to_host(sums.data(), sums_, sums.size() * sizeof(unsigned long long));
  for (size_t i = 0; i < result.size(); ++i) result[i].nodes = sums[i];
  return result;
}

// Adds what `positions` of a level lead to in `plies` more moves, at least two, to the sums of their first moves.
void GpuPerft::count(int64_t positions, int plies, size_t number) {
  const Position* parents = level(number);
  const int64_t room = plies == 2 ? room_.last_ply : room_.ply;
  while (positions > 0) {
    int64_t part = std::min(positions, std::max<int64_t>(1, room / kExpectedMoves));
    const int64_t children = list(parents, part, room);
    if (plies == 2) {
      kernels_.perft_count(parents, children_, children, sums_, stream_);
    } else {
      kernels_.perft_make(parents, children_, children, level(number + 1), stream_);
      count(children, plies - 1, number + 1);
    }
    parents += part;
    positions -= part;
  }
}

// Lists the moves of `n` positions, or of fewer if there is no room for those of all: at least of one. How many moves.
int64_t GpuPerft::list(const Position* parents, int64_t& n, int64_t room) {
  while (true) {
    unsigned long long moves = 0;
    device_.zero(total_, sizeof(moves));
    kernels_.perft_list(parents, n, children_, room, total_, stream_);
    device_.to_host(&moves, total_, sizeof(moves));
    if (moves <= static_cast<unsigned long long>(room)) return static_cast<int64_t>(moves);
    n = (n + 1) / 2;
  }
}

Position* GpuPerft::level(size_t number) {
  while (levels_.size() <= number)
    levels_.push_back(static_cast<Position*>(device_.allocate(static_cast<size_t>(room_.ply) * sizeof(Position))));
  return levels_[number];
}

}  // namespace tandem
