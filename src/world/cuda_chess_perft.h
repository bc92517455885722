// world/cuda_chess_perft.h -- the kernels that count positions, as ChessKernels (cuda_chess.h) describes them.
#pragma once

#include "world/cuda_chess.h"

namespace tandem::cuda {

void perft_list(const chess::Position* parents, int64_t n, PerftChild* children, int64_t capacity,
                unsigned long long* total, CUstream_st* stream);
void perft_make(const chess::Position* parents, const PerftChild* children, int64_t n, chess::Position* made,
                CUstream_st* stream);
void perft_count(const chess::Position* parents, const PerftChild* children, int64_t n, unsigned long long* sums,
                 CUstream_st* stream);

}  // namespace tandem::cuda
