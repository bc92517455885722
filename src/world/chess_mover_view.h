// world/chess_mover_view.h -- a position with colours exchanged: as the other side sees it over the board.
//
// GPU kernels look at every position from the side that moves, so that White is always to move: threads of a warp would
// otherwise run the code of both sides one after the other, and the code would be twice as long. Seen so, the action
// code (chess/action_code.h) needs no turning.
#pragma once

#include "world/chess/move.h"
#include "world/chess/position.h"

namespace tandem::chess {

// The ranks in reverse order: 1 and 8, 2 and 7, ...
TANDEM_HD Bitboard turned(Bitboard squares) {
#if defined(__CUDA_ARCH__)
  const auto low = static_cast<uint32_t>(squares), high = static_cast<uint32_t>(squares >> 32);
  return uint64_t{__byte_perm(low, 0, 0x0123)} << 32 | __byte_perm(high, 0, 0x0123);
#else
  return __builtin_bswap64(squares);
#endif
}

TANDEM_HD constexpr Move turned(Move move) {
  return Move::from_bits(static_cast<uint16_t>(move.bits() ^ (56 | 56 << 6)));
}

// All but hash and counters, which stay as they are.
TANDEM_HD Position colours_exchanged(const Position& position) {
  Position seen = position;
  seen.white = turned(position.black());
  seen.pawns = turned(position.pawns);
  seen.knights = turned(position.knights);
  seen.diagonal = turned(position.diagonal);
  seen.straight = turned(position.straight);
  seen.kings = turned(position.kings);
  seen.side_to_move = other(position.side_to_move);
  seen.castling = static_cast<uint8_t>((position.castling << 2 | position.castling >> 2) & 15);
  seen.en_passant = static_cast<uint8_t>(position.en_passant ? position.en_passant ^ 56 : 0);
  return seen;
}

TANDEM_HD Position seen_by_mover(const Position& position) {
  return position.side_to_move == Side::kWhite ? position : colours_exchanged(position);
}

}  // namespace tandem::chess
