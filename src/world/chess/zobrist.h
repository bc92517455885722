// world/chess/zobrist.h -- the random numbers whose XOR is the hash of a position.
//
// The numbers never change: hashes of one program are those of the next, on CPU and GPU.
#pragma once

#include "world/chess/bitboard.h"

namespace tandem::chess {

inline constexpr int kZobristCastling = 12 * 64;                   // four, one for each right
inline constexpr int kZobristEnPassant = kZobristCastling + 4;     // eight, one for each file
inline constexpr int kZobristBlackToMove = kZobristEnPassant + 8;  // one
inline constexpr int kZobristCount = kZobristBlackToMove + 1;

// SplitMix64 (Steele, Lea, Flood 2014): number n of the sequence that begins with seed 0.
TANDEM_HD constexpr uint64_t zobrist_number(int n) {
  uint64_t x = 0x9E3779B97F4A7C15ull * static_cast<uint64_t>(n + 1);
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

struct ZobristTable {
  uint64_t number[kZobristCount] = {};
  constexpr ZobristTable() {
    for (int n = 0; n < kZobristCount; ++n) number[n] = zobrist_number(n);
  }
};
inline constexpr ZobristTable kZobrist;

// A GPU computes the number faster than it loads it.
TANDEM_HD uint64_t zobrist(int n) {
#if defined(__CUDA_ARCH__)
  return zobrist_number(n);
#else
  return kZobrist.number[n];
#endif
}
TANDEM_HD uint64_t zobrist_piece(Side side, PieceType type, Square square) {
  return zobrist((static_cast<int>(side) * 6 + static_cast<int>(type)) * 64 + square);
}

}  // namespace tandem::chess
