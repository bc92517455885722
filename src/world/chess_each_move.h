// world/chess_each_move.h -- a sink of the move generator (chess/move_generator.h) that passes moves on one by one, in
// the order of lists: to `Taker`, by take(from, to, kind).
#pragma once

#include "world/chess/move.h"

namespace tandem::chess {

template <class Taker>
struct EachMove {
  Taker& taker;

  TANDEM_HD void all(Square from, Bitboard targets) {
    while (targets) taker.take(from, take_lowest(targets), MoveKind::kNormal);
  }
  template <int kDelta>
  TANDEM_HD void by_pawns(Bitboard targets, MoveKind kind) {
    while (targets) {
      const Square to = take_lowest(targets);
      taker.take(to - kDelta, to, kind);
    }
  }

  TANDEM_HD void king(Square from, Bitboard targets) { all(from, targets); }
  TANDEM_HD void knight(Square from, Bitboard targets) { all(from, targets); }
  TANDEM_HD void diagonal(Square from, Bitboard targets) { all(from, targets); }
  TANDEM_HD void straight(Square from, Bitboard targets) { all(from, targets); }
  template <int kDelta>
  TANDEM_HD void pawns(Bitboard targets) {
    by_pawns<kDelta>(targets, MoveKind::kNormal);
  }
  template <int kDelta>
  TANDEM_HD void double_steps(Bitboard targets) {
    by_pawns<kDelta>(targets, MoveKind::kDoubleStep);
  }
  template <int kDelta>
  TANDEM_HD void promotions(Bitboard targets) {
    while (targets) {
      const Square to = take_lowest(targets);
#if defined(__CUDA_ARCH__)
#pragma unroll 1
#endif
      for (int kind = static_cast<int>(MoveKind::kToQueen); kind >= static_cast<int>(MoveKind::kToKnight); --kind)
        taker.take(to - kDelta, to, static_cast<MoveKind>(kind));
    }
  }
  TANDEM_HD void en_passant(Square from, Square to) { taker.take(from, to, MoveKind::kEnPassant); }
  TANDEM_HD void castling(Square from, Square to) { taker.take(from, to, MoveKind::kCastling); }
};

}  // namespace tandem::chess
