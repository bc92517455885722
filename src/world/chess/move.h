// world/chess/move.h -- a move in 16 bits, and a list of moves without heap.
#pragma once

#include "world/chess/bitboard.h"

namespace tandem::chess {

enum class MoveKind : uint8_t {
  kNormal = 0,  // also captures
  kDoubleStep = 1,
  kEnPassant = 2,
  kCastling = 3,  // from and to are the king's squares
  kToKnight = 4,  // promotions
  kToBishop = 5,
  kToRook = 6,
  kToQueen = 7,
};

class Move {
 public:
  Move() = default;  // Move() and Move{} are no move; a variable without them is not set, so that lists cost nothing
  TANDEM_HD constexpr Move(Square from, Square to, MoveKind kind = MoveKind::kNormal)
      : bits_(static_cast<uint16_t>(from | to << 6 | static_cast<int>(kind) << 12)) {}
  TANDEM_HD constexpr Square from() const { return bits_ & 63; }
  TANDEM_HD constexpr Square to() const { return bits_ >> 6 & 63; }
  TANDEM_HD constexpr MoveKind kind() const { return static_cast<MoveKind>(bits_ >> 12); }
  TANDEM_HD constexpr bool is_promotion() const { return bits_ >> 14; }
  // What a pawn becomes; kNone where it is no promotion.
  TANDEM_HD constexpr PieceType promotion() const {
    return is_promotion() ? static_cast<PieceType>(static_cast<int>(kind()) - 3) : PieceType::kNone;
  }
  TANDEM_HD constexpr uint16_t bits() const { return bits_; }
  TANDEM_HD static constexpr Move from_bits(uint16_t bits) {
    return Move(bits & 63, bits >> 6 & 63, static_cast<MoveKind>(bits >> 12));
  }
  // False for no move: no piece goes from a1 to a1.
  TANDEM_HD constexpr explicit operator bool() const { return bits_ != 0; }
  TANDEM_HD constexpr bool operator==(const Move& o) const { return bits_ == o.bits_; }

 private:
  uint16_t bits_;
};

TANDEM_HD constexpr MoveKind promotion_to(PieceType type) {  // knight, bishop, rook or queen
  return static_cast<MoveKind>(static_cast<int>(type) + 3);
}

// No game reaches more than 218, but a legal FEN may have any 15 pieces beside the king: 15 x 27 + 8 and two castlings.
inline constexpr int kMostMoves = 416;

struct MoveList {
  Move moves[kMostMoves];
  int size;

  TANDEM_HD MoveList() : size(0) {}
  TANDEM_HD void add(Move move) { moves[size++] = move; }
  TANDEM_HD const Move* begin() const { return moves; }
  TANDEM_HD const Move* end() const { return moves + size; }
  TANDEM_HD Move operator[](int i) const { return moves[i]; }
  TANDEM_HD bool contains(Move move) const {
    for (int i = 0; i < size; ++i)
      if (moves[i] == move) return true;
    return false;
  }
};

}  // namespace tandem::chess
