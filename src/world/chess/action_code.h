// world/chess/action_code.h -- a move as one of 64 x 73 actions, seen from the side that moves; for policies.
//
//   action = from * 73 + type
//   type 0-55   as a queen moves: direction * 7 + distance - 1; a pawn that reaches the last rank becomes a queen
//   type 56-63  as a knight moves
//   type 64-72  under-promotion: 64 + 3 * (file step + 1) + 0 knight, 1 bishop, 2 rook
// The board is turned for Black (a2 and a7 change places, files stay), so that both sides move up the board: Black can
// under-promote, and a position with colours exchanged has the same actions. In one position the code is a bijection
// between legal moves and the actions of its mask. Castling is the king's step of two files.
#pragma once

#include "world/chess/move.h"
#include "world/chess/move_generator.h"
#include "world/chess/position.h"

namespace tandem::chess {

inline constexpr int kActionTypes = 73;
inline constexpr int kActionCount = 64 * kActionTypes;  // 4,672
inline constexpr int kFirstKnightType = 56, kFirstUnderPromotionType = 64;

// File and rank step of the eight directions and of the eight knight's moves, upper half-byte and lower half-byte
// of each byte, both plus 2. A constant rather than a table, which a GPU could not read here.
inline constexpr uint64_t kQueenSteps =  // (-1,0) (1,0) (0,-1) (0,1) (-1,-1) (-1,1) (1,-1) (1,1)
    0x33'31'13'11'23'21'32'12ull;
inline constexpr uint64_t kKnightSteps =  // (-2,-1) (-2,1) (-1,-2) (-1,2) (1,-2) (1,2) (2,-1) (2,1)
    0x43'41'34'30'14'10'03'01ull;
TANDEM_HD constexpr int file_step(uint64_t steps, int n) { return static_cast<int>(steps >> (8 * n + 4) & 15) - 2; }
TANDEM_HD constexpr int rank_step(uint64_t steps, int n) { return static_cast<int>(steps >> (8 * n) & 15) - 2; }

// Of a legal move.
TANDEM_HD constexpr int action_of(Move move, Side mover) {
  const int turn = mover == Side::kWhite ? 0 : 56;
  const Square from = move.from() ^ turn, to = move.to() ^ turn;
  const int files = file_of(to) - file_of(from), ranks = rank_of(to) - rank_of(from);
  int type = 0;
  if (move.is_promotion() && move.kind() != MoveKind::kToQueen) {
    type = kFirstUnderPromotionType + 3 * (files + 1) + static_cast<int>(move.kind()) -
           static_cast<int>(MoveKind::kToKnight);
  } else if (files != 0 && ranks != 0 && files != ranks && files != -ranks) {
    const int far_files = files == 2 || files == -2;  // (-2,-1) (-2,1) (-1,-2) (-1,2) (1,-2) (1,2) (2,-1) (2,1)
    const int pair = files < 0 ? (far_files ? 0 : 1) : (far_files ? 3 : 2);
    type = kFirstKnightType + 2 * pair + (ranks > 0);
  } else {
    const int distance = files > 0 ? files : files < 0 ? -files : ranks > 0 ? ranks : -ranks;
    const int direction = ranks == 0 ? (files > 0) : files == 0 ? 2 + (ranks > 0) : 4 + 2 * (files > 0) + (ranks > 0);
    type = direction * 7 + distance - 1;
  }
  return from * kActionTypes + type;
}

// The move of an action whose bit is in the position's mask; Move() where from or to lies off the board. The result is
// legal exactly if the action is in the mask.
TANDEM_HD constexpr Move move_of_action(const Position& position, int action) {
  const int turn = position.side_to_move == Side::kWhite ? 0 : 56;
  const Square from = action / kActionTypes;
  const int type = action % kActionTypes;
  int files = 0, ranks = 1;
  MoveKind kind = MoveKind::kNormal;
  if (type >= kFirstUnderPromotionType) {
    files = (type - kFirstUnderPromotionType) / 3 - 1;
    kind = static_cast<MoveKind>(static_cast<int>(MoveKind::kToKnight) + (type - kFirstUnderPromotionType) % 3);
  } else if (type >= kFirstKnightType) {
    files = file_step(kKnightSteps, type - kFirstKnightType);
    ranks = rank_step(kKnightSteps, type - kFirstKnightType);
  } else {
    files = file_step(kQueenSteps, type / 7) * (type % 7 + 1);
    ranks = rank_step(kQueenSteps, type / 7) * (type % 7 + 1);
  }
  const int file = file_of(from) + files, rank = rank_of(from) + ranks;
  if (file < 0 || file > 7 || rank < 0 || rank > 7) return Move(0, 0);
  const Square to = square_at(file, rank), real_from = from ^ turn, real_to = to ^ turn;
  if (kind == MoveKind::kNormal) {
    if (has(position.pawns, real_from)) {
      if (rank == 7)
        kind = MoveKind::kToQueen;
      else if (ranks == 2)
        kind = MoveKind::kDoubleStep;
      else if (files != 0 && position.en_passant == real_to && real_to != 0)
        kind = MoveKind::kEnPassant;
    } else if (has(position.kings, real_from) && (files == 2 || files == -2)) {
      kind = MoveKind::kCastling;
    }
  }
  return Move(real_from, real_to, kind);
}

// One bit for each action; 4,672 bits in 73 words.
struct ActionMask {
  uint64_t word[kActionTypes] = {};

  TANDEM_HD void set(int action) { word[action >> 6] |= uint64_t{1} << (action & 63); }
  TANDEM_HD bool has(int action) const { return word[action >> 6] >> (action & 63) & 1; }
};
static_assert(sizeof(ActionMask) * 8 == kActionCount);

TANDEM_HD ActionMask legal_action_mask(const MoveList& legal, Side mover) {
  ActionMask mask;
  for (int i = 0; i < legal.size; ++i) mask.set(action_of(legal[i], mover));
  return mask;
}

}  // namespace tandem::chess
