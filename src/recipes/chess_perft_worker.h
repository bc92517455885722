// recipes/chess_perft_worker.h -- what `tandem perft --device cuda:0` starts, since `tandem` itself drives no GPU:
//
//   tandem-worker chess-perft DEPTH FEN
//   {"gpu":"NVIDIA H200","nodes":[8457,9345,...],"seconds":0.004}
//
// `nodes` has a number for each first move, in the order of legal_moves().
#pragma once

namespace tandem {

inline constexpr const char* kChessPerftWord = "chess-perft";

// Prints that object, or what is wrong. Returns the exit code.
int chess_perft_worker(int argc, char** argv);

}  // namespace tandem
