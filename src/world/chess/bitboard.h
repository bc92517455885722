// world/chess/bitboard.h -- sets of squares in 64 bits. Bit 0 is a1, bit 7 is h1, bit 63 is h8.
//
// One source for CPU and GPU: no tables, no standard library. A CPU has faster sliding attacks by tables (sliders.h).
#pragma once

#include <cstdint>

#include "kernels/portable.h"

namespace tandem::chess {

using Bitboard = uint64_t;
using Square = int32_t;  // 0 = a1, 1 = b1, ..., 63 = h8

enum class Side : uint8_t { kWhite, kBlack };
enum class PieceType : uint8_t { kPawn, kKnight, kBishop, kRook, kQueen, kKing, kNone };

inline constexpr Bitboard kFileA = 0x0101010101010101ull, kFileH = kFileA << 7;
inline constexpr Bitboard kRank1 = 0xFFull, kRank8 = kRank1 << 56;
inline constexpr Bitboard kDarkSquares = 0xAA55AA55AA55AA55ull, kLightSquares = ~kDarkSquares;  // a1 is dark

TANDEM_HD constexpr Side other(Side side) { return side == Side::kWhite ? Side::kBlack : Side::kWhite; }

TANDEM_HD constexpr Bitboard bit(Square square) { return Bitboard{1} << square; }
TANDEM_HD constexpr int file_of(Square square) { return square & 7; }
TANDEM_HD constexpr int rank_of(Square square) { return square >> 3; }
TANDEM_HD constexpr Square square_at(int file, int rank) { return rank * 8 + file; }
TANDEM_HD constexpr Bitboard file_mask(int file) { return kFileA << file; }
TANDEM_HD constexpr Bitboard rank_mask(int rank) { return kRank1 << (8 * rank); }
// The same square as the other side sees it: a2 and a7, e1 and e8.
TANDEM_HD constexpr Square mirrored(Square square) { return square ^ 56; }

TANDEM_HD int count(Bitboard squares) {
#if defined(__CUDA_ARCH__)
  return __popcll(squares);
#else
  return __builtin_popcountll(squares);
#endif
}
// Of a set that is not empty.
TANDEM_HD Square lowest(Bitboard squares) {
#if defined(__CUDA_ARCH__)
  return __ffsll(static_cast<long long>(squares)) - 1;
#else
  return __builtin_ctzll(squares);
#endif
}
TANDEM_HD Square take_lowest(Bitboard& squares) {
  const Square square = lowest(squares);
  squares &= squares - 1;
  return square;
}
// The highest square of a set that is not empty, as a set.
TANDEM_HD Bitboard highest_bit(Bitboard squares) {
#if defined(__CUDA_ARCH__)
  return (Bitboard{1} << 63) >> __clzll(static_cast<long long>(squares));
#else
  return (Bitboard{1} << 63) >> __builtin_clzll(squares);
#endif
}
TANDEM_HD constexpr bool has(Bitboard squares, Square square) { return (squares >> square) & 1; }
TANDEM_HD constexpr bool at_most_one(Bitboard squares) { return (squares & (squares - 1)) == 0; }

// All squares moved by files and ranks; those that leave the board are gone.
template <int kFiles, int kRanks>
TANDEM_HD constexpr Bitboard moved(Bitboard squares) {
  static_assert(kFiles >= -2 && kFiles <= 2 && kRanks >= -7 && kRanks <= 7);
  constexpr Bitboard kLost = kFiles == 0    ? 0
                             : kFiles == 1  ? kFileH
                             : kFiles == 2  ? kFileH | kFileH >> 1
                             : kFiles == -1 ? kFileA
                                            : kFileA | kFileA << 1;
  constexpr int kShift = 8 * kRanks + kFiles;
  const Bitboard kept = squares & ~kLost;
  if constexpr (kShift >= 0)
    return kept << kShift;
  else
    return kept >> -kShift;
}

TANDEM_HD constexpr Bitboard knight_attacks(Bitboard knights) {
  const Bitboard one = moved<1, 0>(knights) | moved<-1, 0>(knights);
  const Bitboard two = moved<2, 0>(knights) | moved<-2, 0>(knights);
  return one << 16 | one >> 16 | two << 8 | two >> 8;
}
TANDEM_HD constexpr Bitboard king_attacks(Bitboard kings) {
  const Bitboard row = kings | moved<1, 0>(kings) | moved<-1, 0>(kings);
  return (row | row << 8 | row >> 8) & ~kings;
}
template <Side kSide>
TANDEM_HD constexpr Bitboard pawn_attacks(Bitboard pawns) {
  constexpr int kUp = kSide == Side::kWhite ? 1 : -1;
  return moved<-1, kUp>(pawns) | moved<1, kUp>(pawns);
}

// The two lines of each kind through a square, without the square itself.
TANDEM_HD constexpr Bitboard diagonal_of(Square square) {  // as a1-h8
  constexpr Bitboard kMain = 0x8040201008040201ull;
  const int up = 8 * (rank_of(square) - file_of(square));
  return (up >= 0 ? kMain << up : kMain >> -up) & ~bit(square);
}
TANDEM_HD constexpr Bitboard antidiagonal_of(Square square) {  // as a8-h1
  constexpr Bitboard kMain = 0x0102040810204080ull;
  const int up = 8 * (rank_of(square) + file_of(square) - 7);
  return (up >= 0 ? kMain << up : kMain >> -up) & ~bit(square);
}
TANDEM_HD constexpr Bitboard file_through(Square square) { return file_mask(file_of(square)) & ~bit(square); }
TANDEM_HD constexpr Bitboard rank_through(Square square) { return rank_mask(rank_of(square)) & ~bit(square); }

// The squares strictly between two squares of one line; nothing where they share none. Lines of one kind are the same
// line or have no square in common, so that each term is a whole line or empty.
TANDEM_HD constexpr Bitboard between(Square a, Square b) {
  const Bitboard inside = (~Bitboard{0} << a) ^ (~Bitboard{0} << b);  // from the lower one to before the upper one
  return inside & ((file_through(a) & file_through(b)) | (rank_through(a) & rank_through(b)) |
                   (diagonal_of(a) & diagonal_of(b)) | (antidiagonal_of(a) & antidiagonal_of(b)));
}

}  // namespace tandem::chess
