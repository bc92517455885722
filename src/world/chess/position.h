// world/chess/position.h -- a chess position in 64 bytes: one cache line, trivially copyable, the same on CPU and GPU.
//
// Six bitboards hold twelve kinds of piece: a queen is a piece that moves diagonally and straight, and what is not
// White's is Black's. Promises of every position that fen.h reads and make_move() makes:
//   - one king for each side, no pawn on the first or last rank, the side that has just moved is not in check;
//   - a castling right means that king and rook are on their squares;
//   - en_passant is set only if a legal capture exists, so that equal positions (in the sense of the repetition rule)
//     have equal fields and equal hashes.
#pragma once

#include "world/chess/zobrist.h"

namespace tandem::chess {

enum CastlingRight : uint8_t { kWhiteShort = 1, kWhiteLong = 2, kBlackShort = 4, kBlackLong = 8 };

struct alignas(64) Position {
  Bitboard white = 0;
  Bitboard pawns = 0, knights = 0;
  Bitboard diagonal = 0;  // bishops and queens
  Bitboard straight = 0;  // rooks and queens
  Bitboard kings = 0;
  uint64_t hash = 0;            // of everything but the two counters
  uint16_t halfmove_clock = 0;  // since the last capture or pawn move; stays at 65535
  uint16_t fullmove_number = 1;
  Side side_to_move = Side::kWhite;
  uint8_t castling = 0;    // of CastlingRight
  uint8_t en_passant = 0;  // the square behind a pawn that may be captured; 0: none
  uint8_t reserved = 0;    // so that no byte is left undefined

  TANDEM_HD Bitboard occupied() const { return pawns | knights | diagonal | straight | kings; }
  TANDEM_HD Bitboard black() const { return occupied() & ~white; }
  TANDEM_HD Bitboard of(Side side) const { return side == Side::kWhite ? white : black(); }
  TANDEM_HD Bitboard bishops() const { return diagonal & ~straight; }
  TANDEM_HD Bitboard rooks() const { return straight & ~diagonal; }
  TANDEM_HD Bitboard queens() const { return diagonal & straight; }
  TANDEM_HD Bitboard of(PieceType type) const {
    switch (type) {
      case PieceType::kPawn:
        return pawns;
      case PieceType::kKnight:
        return knights;
      case PieceType::kBishop:
        return bishops();
      case PieceType::kRook:
        return rooks();
      case PieceType::kQueen:
        return queens();
      case PieceType::kKing:
        return kings;
      case PieceType::kNone:
        break;
    }
    return ~occupied();
  }
  TANDEM_HD Square king(Side side) const { return lowest(kings & of(side)); }

  // Without branches: the bits of the boards that hold the square, counted up.
  TANDEM_HD PieceType type_at(Square square) const {
    const auto in = [square](Bitboard board) { return static_cast<int>((board >> square) & 1); };
    const int slides = 2 * in(diagonal) + 3 * in(straight)-in(queens());  // bishop 2, rook 3, queen 4
    return static_cast<PieceType>(slides + in(knights) + 5 * in(kings) + 6 * in(~occupied()));
  }
  // Of an occupied square.
  TANDEM_HD Side side_at(Square square) const { return has(white, square) ? Side::kWhite : Side::kBlack; }
  // Of an empty square; the caller keeps the hash.
  TANDEM_HD void put(Side side, PieceType type, Square square) {
    const Bitboard b = bit(square);
    if (side == Side::kWhite) white |= b;
    if (type == PieceType::kPawn) pawns |= b;
    if (type == PieceType::kKnight) knights |= b;
    if (type == PieceType::kBishop || type == PieceType::kQueen) diagonal |= b;
    if (type == PieceType::kRook || type == PieceType::kQueen) straight |= b;
    if (type == PieceType::kKing) kings |= b;
  }

  bool operator==(const Position&) const = default;
};
static_assert(sizeof(Position) == 64);

// The same position in the sense of the repetition rule: all but the counters.
TANDEM_HD bool same_position(const Position& a, const Position& b) {
  return a.hash == b.hash && a.white == b.white && a.pawns == b.pawns && a.knights == b.knights &&
         a.diagonal == b.diagonal && a.straight == b.straight && a.kings == b.kings &&
         a.side_to_move == b.side_to_move && a.castling == b.castling && a.en_passant == b.en_passant;
}

// The hash from scratch; make_move() keeps it up to date.
TANDEM_HD uint64_t hash_of(const Position& position) {
  uint64_t hash = 0;
  for (Bitboard left = position.occupied(); left;) {
    const Square square = take_lowest(left);
    hash ^= zobrist_piece(position.side_at(square), position.type_at(square), square);
  }
  for (int right = 0; right < 4; ++right)
    if (position.castling >> right & 1) hash ^= zobrist(kZobristCastling + right);
  if (position.en_passant) hash ^= zobrist(kZobristEnPassant + file_of(position.en_passant));
  if (position.side_to_move == Side::kBlack) hash ^= zobrist(kZobristBlackToMove);
  return hash;
}

Position start_position();

}  // namespace tandem::chess
