#include "world/chess/players/evaluation.h"

#include <array>
#include <cstddef>

namespace tandem::chess {
namespace {

// As White sees the board: the first row is the eighth rank, so that a pawn gains on its way up the page.
using SquareTable = std::array<int, 64>;

// clang-format off
constexpr std::array<SquareTable, 7> kTables = {{
    {{  // pawn
        0,   0,   0,   0,   0,   0,   0,   0,
       50,  50,  50,  50,  50,  50,  50,  50,
       10,  10,  20,  30,  30,  20,  10,  10,
        5,   5,  10,  25,  25,  10,   5,   5,
        0,   0,   0,  20,  20,   0,   0,   0,
        5,  -5, -10,   0,   0, -10,  -5,   5,
        5,  10,  10, -20, -20,  10,  10,   5,
        0,   0,   0,   0,   0,   0,   0,   0,
    }},
    {{  // knight
      -50, -40, -30, -30, -30, -30, -40, -50,
      -40, -20,   0,   0,   0,   0, -20, -40,
      -30,   0,  10,  15,  15,  10,   0, -30,
      -30,   5,  15,  20,  20,  15,   5, -30,
      -30,   0,  15,  20,  20,  15,   0, -30,
      -30,   5,  10,  15,  15,  10,   5, -30,
      -40, -20,   0,   5,   5,   0, -20, -40,
      -50, -40, -30, -30, -30, -30, -40, -50,
    }},
    {{  // bishop
      -20, -10, -10, -10, -10, -10, -10, -20,
      -10,   0,   0,   0,   0,   0,   0, -10,
      -10,   0,   5,  10,  10,   5,   0, -10,
      -10,   5,   5,  10,  10,   5,   5, -10,
      -10,   0,  10,  10,  10,  10,   0, -10,
      -10,  10,  10,  10,  10,  10,  10, -10,
      -10,   5,   0,   0,   0,   0,   5, -10,
      -20, -10, -10, -10, -10, -10, -10, -20,
    }},
    {{  // rook
        0,   0,   0,   0,   0,   0,   0,   0,
        5,  10,  10,  10,  10,  10,  10,   5,
       -5,   0,   0,   0,   0,   0,   0,  -5,
       -5,   0,   0,   0,   0,   0,   0,  -5,
       -5,   0,   0,   0,   0,   0,   0,  -5,
       -5,   0,   0,   0,   0,   0,   0,  -5,
       -5,   0,   0,   0,   0,   0,   0,  -5,
        0,   0,   0,   5,   5,   0,   0,   0,
    }},
    {{  // queen
      -20, -10, -10,  -5,  -5, -10, -10, -20,
      -10,   0,   0,   0,   0,   0,   0, -10,
      -10,   0,   5,   5,   5,   5,   0, -10,
       -5,   0,   5,   5,   5,   5,   0,  -5,
        0,   0,   5,   5,   5,   5,   0,  -5,
      -10,   5,   5,   5,   5,   5,   0, -10,
      -10,   0,   5,   0,   0,   0,   0, -10,
      -20, -10, -10,  -5,  -5, -10, -10, -20,
    }},
    {{  // king, while queens are about
      -30, -40, -40, -50, -50, -40, -40, -30,
      -30, -40, -40, -50, -50, -40, -40, -30,
      -30, -40, -40, -50, -50, -40, -40, -30,
      -30, -40, -40, -50, -50, -40, -40, -30,
      -20, -30, -30, -40, -40, -30, -30, -20,
      -10, -20, -20, -20, -20, -20, -20, -10,
       20,  20,   0,   0,   0,   0,  20,  20,
       20,  30,  10,   0,   0,  10,  30,  20,
    }},
    {{  // king in the endgame
      -50, -40, -30, -20, -20, -30, -40, -50,
      -30, -20, -10,   0,   0, -10, -20, -30,
      -30, -10,  20,  30,  30,  20, -10, -30,
      -30, -10,  30,  40,  40,  30, -10, -30,
      -30, -10,  30,  40,  40,  30, -10, -30,
      -30, -10,  20,  30,  30,  20, -10, -30,
      -30, -30,   0,   0,   0,   0, -30, -30,
      -50, -30, -30, -30, -30, -30, -30, -50,
    }},
}};
// clang-format on
constexpr size_t kEndgameKing = 6;

// A side with a queen has one light piece beside it at most; a side without has what it likes.
bool is_endgame(const Position& p) {
  for (const Side side : {Side::kWhite, Side::kBlack}) {
    const Bitboard own = p.of(side);
    if ((own & p.queens()) && ((own & p.rooks()) || count(own & (p.knights | p.diagonal)) > 2)) return false;
  }
  return true;
}

int worth(const Position& p, Side side, bool endgame) {
  int sum = 0;
  for (int t = 0; t < 6; ++t) {
    const auto type = static_cast<PieceType>(t);
    const SquareTable& table = kTables[endgame && type == PieceType::kKing ? kEndgameKing : static_cast<size_t>(t)];
    for (Bitboard left = p.of(type) & p.of(side); left;) {
      const Square square = take_lowest(left);
      sum += value_of(type) + table[static_cast<size_t>(side == Side::kWhite ? mirrored(square) : square)];
    }
  }
  return sum;
}

}  // namespace

int value_of(PieceType type) {
  constexpr std::array<int, 7> kValues = {100, 320, 330, 500, 900, 0, 0};
  return kValues[static_cast<size_t>(type)];
}

int evaluate(const Position& position) {
  const bool endgame = is_endgame(position);
  const Side mover = position.side_to_move;
  return worth(position, mover, endgame) - worth(position, other(mover), endgame);
}

}  // namespace tandem::chess
