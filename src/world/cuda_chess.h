// world/cuda_chess.h -- chess on a GPU, thousands of games at once: legal moves, masks of actions, moves made, and
// which games are over. Equal to the CPU's (chess/) to the bit.
//
// A turn of self-play is look_at_games(), a choice of actions, play_chess(). Pointers are to device memory; calls only
// queue work on `stream` and may be captured into a graph. A thread has a game.
#pragma once

#include "kernels/gpu/kernel_tables.h"
#include "world/chess/action_code.h"
#include "world/chess/game.h"

struct CUstream_st;

namespace tandem {

inline constexpr int kLongestClock = 150;  // of plies without capture and pawn move: 75 moves of each side

// What the repetition rule has to know of a game. What came before a capture or a pawn move cannot repeat, so that the
// halfmove clock is the place in the list: nothing is ever moved or forgotten.
struct ChessHistory {
  uint64_t hashes[kLongestClock + 1];  // [c]: of the position when the clock was c
  int32_t first;                       // the oldest that is known: more than 0 if a game began with such a clock
  int32_t repetitions;                 // how often the present position was there, now included
};

struct ChessGames {
  chess::Position* positions;
  ChessHistory* histories;
  chess::GameEnd* ends;  // as look_at_games() found it
};

// What is legal in each position; a null pointer is not wanted.
struct ChessLegal {
  int32_t* counts;
  chess::Move* moves;        // [n, kMostMoves], aligned to 16 bytes; from counts[i] on they mean nothing
  chess::ActionMask* masks;  // aligned to 16 bytes
};

// The move of each game: an action of its mask; -1, or any where the game is over: none.
struct ChessChoice {
  const int32_t* actions;
  const chess::ActionMask* masks;  // of the positions as they are
  unsigned long long* refused;     // counted up by each action that is not in its mask: nothing is played there
};

// Lists have a fixed order, seen from the side that moves: the order of the CPU where that is White, and the turned
// moves of the position with colours exchanged where it is Black.
using ChessLegalKernel = void (*)(const chess::Position* positions, int64_t n, const ChessLegal& legal,
                                  CUstream_st* stream);
// The same, and whether games are over. `rules` allow 75 moves at most; throws std::invalid_argument.
using ChessLookKernel = void (*)(const ChessGames& games, int64_t n, const ChessLegal& legal,
                                 const chess::DrawRules& rules, CUstream_st* stream);
using ChessPlayKernel = void (*)(const ChessGames& games, int64_t n, const ChessChoice& choice, CUstream_st* stream);
// Game i begins anew with starts[i % count]; with `only_over` those that are over. `ends` become kNone.
using ChessBeginKernel = void (*)(const ChessGames& games, int64_t n, const chess::Position* starts, int64_t count,
                                  bool only_over, CUstream_st* stream);

// ---- for counting positions (gpu_perft.h): White is to move in every position, colours exchanged where need be ----

// A move of parents[parent].
struct alignas(8) PerftChild {
  uint32_t parent, move;  // the bits of a chess::Move
};
// All moves of `n` positions; those of one stand together. Their number is added to *total, which is the place of the
// first one; nothing is written beyond children[capacity].
using PerftListKernel = void (*)(const chess::Position* parents, int64_t n, PerftChild* children, int64_t capacity,
                                 unsigned long long* total, CUstream_st* stream);
// The positions after the moves, with the parent's `hash`, which stands for anything.
using PerftMakeKernel = void (*)(const chess::Position* parents, const PerftChild* children, int64_t n,
                                 chess::Position* made, CUstream_st* stream);
// How many moves there are after each; added to sums[parent.hash].
using PerftCountKernel = void (*)(const chess::Position* parents, const PerftChild* children, int64_t n,
                                  unsigned long long* sums, CUstream_st* stream);

struct ChessKernels {
  static constexpr KernelTableId kId{"chess", 1};
  ChessLegalKernel legal;
  ChessLookKernel look;
  ChessPlayKernel play;
  ChessBeginKernel begin;
  PerftListKernel perft_list;
  PerftMakeKernel perft_make;
  PerftCountKernel perft_count;
};

namespace cuda {
const ChessKernels& chess_kernels();
}  // namespace cuda

}  // namespace tandem
