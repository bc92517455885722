// world/chess/make_move.h -- what a legal move does to a position. No undo: a position is 64 bytes, copy it before.
#pragma once

#include "world/chess/move.h"
#include "world/chess/position.h"
#include "world/chess/sliders.h"

namespace tandem::chess {

// Castling rights that remain when something leaves or reaches these squares: rights end when king or rook moves and
// when the rook is captured.
TANDEM_HD constexpr uint8_t castling_after(uint8_t castling, Bitboard touched) {
  constexpr Bitboard kWhiteKing = bit(4), kBlackKing = bit(60);
  if (touched & (kWhiteKing | bit(7))) castling &= ~kWhiteShort;
  if (touched & (kWhiteKing | bit(0))) castling &= ~kWhiteLong;
  if (touched & (kBlackKing | bit(63))) castling &= ~kBlackShort;
  if (touched & (kBlackKing | bit(56))) castling &= ~kBlackLong;
  return castling;
}

// Of a pawn of `kThem` on `from` that captures en passant the pawn on `captured`: does it leave its own king to a
// bishop, rook or queen? Both pawns leave their squares at once, so that neither is pinned in the usual sense.
template <Side kThem, class Sliders>
TANDEM_HD bool en_passant_exposes_king(const Position& p, Square from, Square to, Square captured) {
  const Bitboard occupied = (p.occupied() ^ bit(from) ^ bit(captured)) | bit(to);
  const Bitboard theirs = kThem == Side::kWhite ? p.white : ~p.white;  // of occupied squares
  const Square king = lowest(p.kings & theirs);
  return ((Sliders::diagonal(king, occupied) & p.diagonal) | (Sliders::straight(king, occupied) & p.straight)) &
         ~theirs;
}

// After a double step of `kUs` to `to`, before the side to move changes: may a pawn of the other side capture it?
template <Side kUs, class Sliders>
TANDEM_HD bool can_be_captured_en_passant(const Position& p, Square to) {
  const Bitboard theirs = kUs == Side::kWhite ? ~p.white : p.white;
  Bitboard capturers = (moved<1, 0>(bit(to)) | moved<-1, 0>(bit(to))) & p.pawns & theirs;
  const Square behind = to + (kUs == Side::kWhite ? -8 : 8);
  while (capturers)
    if (!en_passant_exposes_king<other(kUs), Sliders>(p, take_lowest(capturers), behind, to)) return true;
  return false;
}

// kHashed = false leaves the hash as it is, for counting positions (perft.h).
template <Side kUs, class Sliders, bool kHashed = true>
TANDEM_HD void make_move_of(Position& p, Move move) {
  constexpr bool kWhite = kUs == Side::kWhite;
  const Square from = move.from(), to = move.to();
  const Bitboard from_bit = bit(from), to_bit = bit(to), both = from_bit | to_bit;
  const bool captures = p.occupied() & to_bit, pawn = p.pawns & from_bit;
  if constexpr (kHashed) {
    const PieceType type = p.type_at(from);
    p.hash ^= zobrist_piece(kUs, type, from) ^ zobrist_piece(kUs, type, to) ^ zobrist(kZobristBlackToMove);
    if (captures) p.hash ^= zobrist_piece(other(kUs), p.type_at(to), to);
    if (p.en_passant) p.hash ^= zobrist(kZobristEnPassant + file_of(p.en_passant));
  }

  // Every board that holds the piece loses `from` and gains `to`; every other one loses `to`.
  const auto carry = [from, from_bit, to_bit](Bitboard board) {
    const Bitboard holds = (board >> from) & 1;
    return (board & ~(from_bit | to_bit)) | (to_bit & -holds);
  };
  p.pawns = carry(p.pawns);
  p.knights = carry(p.knights);
  p.diagonal = carry(p.diagonal);
  p.straight = carry(p.straight);
  p.kings = carry(p.kings);
  p.white = kWhite ? p.white ^ both : p.white & ~to_bit;

  p.en_passant = 0;
  const MoveKind kind = move.kind();
  if (kind != MoveKind::kNormal) {
    if (kind == MoveKind::kDoubleStep) {
      if (can_be_captured_en_passant<kUs, Sliders>(p, to)) {
        p.en_passant = static_cast<uint8_t>((from + to) / 2);
        if constexpr (kHashed) p.hash ^= zobrist(kZobristEnPassant + file_of(to));
      }
    } else if (kind == MoveKind::kEnPassant) {
      const Square captured = to + (kWhite ? -8 : 8);
      p.pawns ^= bit(captured);
      if constexpr (!kWhite) p.white ^= bit(captured);
      if constexpr (kHashed) p.hash ^= zobrist_piece(other(kUs), PieceType::kPawn, captured);
    } else if (kind == MoveKind::kCastling) {
      const Square rook_from = to > from ? to + 1 : to - 2, rook_to = (from + to) / 2;
      const Bitboard rook = bit(rook_from) | bit(rook_to);
      p.straight ^= rook;
      if constexpr (kWhite) p.white ^= rook;
      if constexpr (kHashed)
        p.hash ^= zobrist_piece(kUs, PieceType::kRook, rook_from) ^ zobrist_piece(kUs, PieceType::kRook, rook_to);
    } else {
      const PieceType type = move.promotion();
      p.pawns ^= to_bit;
      if (type == PieceType::kKnight) p.knights |= to_bit;
      if (type == PieceType::kBishop || type == PieceType::kQueen) p.diagonal |= to_bit;
      if (type == PieceType::kRook || type == PieceType::kQueen) p.straight |= to_bit;
      if constexpr (kHashed) p.hash ^= zobrist_piece(kUs, PieceType::kPawn, to) ^ zobrist_piece(kUs, type, to);
    }
  }

  if (p.castling) {
    const uint8_t castling = castling_after(p.castling, both);
    if constexpr (kHashed)
      for (int right = 0; right < 4; ++right)
        if ((p.castling ^ castling) >> right & 1) p.hash ^= zobrist(kZobristCastling + right);
    p.castling = castling;
  }
  p.halfmove_clock = captures || pawn ? 0 : p.halfmove_clock + (p.halfmove_clock < 0xFFFF);
  if constexpr (!kWhite) p.fullmove_number += p.fullmove_number < 0xFFFF;
  p.side_to_move = other(kUs);
}

// `move` is legal in `position`.
template <class Sliders = ComputedSliders>
TANDEM_HD void make_move(Position& position, Move move) {
  if (position.side_to_move == Side::kWhite)
    make_move_of<Side::kWhite, Sliders>(position, move);
  else
    make_move_of<Side::kBlack, Sliders>(position, move);
}

}  // namespace tandem::chess
