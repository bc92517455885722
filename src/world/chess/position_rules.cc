#include "world/chess/position_rules.h"

#include <fmt/format.h>

#include "world/chess/move_generator.h"

namespace tandem::chess {
namespace {

const char* name_of(Side side) { return side == Side::kWhite ? "White" : "Black"; }

// A position on paper may have several kings: the highest one is looked at, as python-chess does.
Bitboard highest_king(const Position& p, Side side) {
  const Bitboard kings = p.kings & p.of(side);
  return kings ? highest_bit(kings) : 0;
}

Bitboard attackers(const Position& p, Side side, Square square, Bitboard occupied) {
  return side == Side::kWhite ? attackers_of<Side::kWhite, ComputedSliders>(p, square, p.of(side), occupied)
                              : attackers_of<Side::kBlack, ComputedSliders>(p, square, p.of(side), occupied);
}

// The whole line through two squares, themselves included; nothing where they share none.
Bitboard line_through(Square a, Square b) {
  const Bitboard ends = bit(a) | bit(b);
  for (const Bitboard line :
       {file_through(a) | bit(a), rank_through(a) | bit(a), diagonal_of(a) | bit(a), antidiagonal_of(a) | bit(a)})
    if ((line & ends) == ends) return line;
  return 0;
}

struct Right {
  CastlingRight right;
  char letter;
  Side side;
  Square king, rook;
};
constexpr Right kRights[] = {{kWhiteShort, 'K', Side::kWhite, 4, 7},
                             {kWhiteLong, 'Q', Side::kWhite, 4, 0},
                             {kBlackShort, 'k', Side::kBlack, 60, 63},
                             {kBlackLong, 'q', Side::kBlack, 60, 56}};

std::string wrong_castling(const Position& p, bool foreign) {
  for (const Right& r : kRights) {
    if (!(p.castling & r.right)) continue;
    const Bitboard own = p.of(r.side);
    const char* const missing = !has(p.kings & own, r.king) ? "king" : !has(p.rooks() & own, r.rook) ? "rook" : nullptr;
    if (missing)
      return fmt::format("castling right {}, but {}'s {} is not on {}", r.letter, name_of(r.side), missing,
                         square_name(missing[0] == 'k' ? r.king : r.rook));
  }
  return foreign ? "castling rights of Chess960, which is another game" : "";
}

std::string wrong_en_passant(const Position& p, Square square) {
  if (square < 0) return "";
  const bool white = p.side_to_move == Side::kWhite;
  const Square pawn = square + (white ? -8 : 8), home = square + (white ? 8 : -8);
  if (rank_of(square) != (white ? 5 : 2))
    return fmt::format("en-passant square {}, but with {} to move it is on rank {}", square_name(square),
                       name_of(p.side_to_move), white ? 6 : 3);
  if (!has(p.pawns & p.of(other(p.side_to_move)), pawn))
    return fmt::format("en-passant square {}, but no {} pawn on {} has just made two steps", square_name(square),
                       white ? "black" : "white", square_name(pawn));
  for (const Square empty : {square, home})
    if (has(p.occupied(), empty))
      return fmt::format("en-passant square {}, but {} is not empty", square_name(square), square_name(empty));
  return "";
}

// Could the last move have given this check?
bool is_impossible_check(const Position& p, Bitboard checkers, Square en_passant) {
  const Bitboard kings = p.kings & p.of(p.side_to_move);
  if (en_passant >= 0) {
    if (!at_most_one(checkers)) return true;
    const Square pushed_to = en_passant ^ 8, pushed_from = en_passant ^ 24;
    if (lowest(checkers) == pushed_to) return false;
    // Otherwise the pawn has uncovered it: before its two steps the king was safe.
    const Bitboard before = (p.occupied() & ~bit(pushed_to)) | bit(pushed_from);
    for (Bitboard left = kings; left;)
      if (attackers(p, other(p.side_to_move), take_lowest(left), before)) return true;
    return false;
  }
  if (count(checkers) > 2) return true;
  // Two on one line through the king: neither could have moved there without the other's check before.
  return count(checkers) == 2 && (line_through(lowest(checkers), lowest(highest_bit(checkers))) & kings);
}

}  // namespace

std::string_view word_of(PositionRule rule) {
  switch (rule) {
    case PositionRule::kEmpty:
      return "empty";
    case PositionRule::kNoWhiteKing:
      return "no-white-king";
    case PositionRule::kNoBlackKing:
      return "no-black-king";
    case PositionRule::kTooManyKings:
      return "too-many-kings";
    case PositionRule::kTooManyWhitePieces:
      return "too-many-white-pieces";
    case PositionRule::kTooManyBlackPieces:
      return "too-many-black-pieces";
    case PositionRule::kTooManyWhitePawns:
      return "too-many-white-pawns";
    case PositionRule::kTooManyBlackPawns:
      return "too-many-black-pawns";
    case PositionRule::kPawnsOnBackrank:
      return "pawns-on-backrank";
    case PositionRule::kBadCastlingRights:
      return "bad-castling-rights";
    case PositionRule::kInvalidEpSquare:
      return "invalid-ep-square";
    case PositionRule::kOppositeCheck:
      return "opposite-check";
    case PositionRule::kTooManyCheckers:
      return "too-many-checkers";
    case PositionRule::kImpossibleCheck:
      return "impossible-check";
  }
  return "?";
}

std::vector<BrokenRule> rules_broken_by(const Position& p, Square en_passant, bool foreign_castling) {
  std::vector<BrokenRule> broken;
  const auto breaks = [&broken](PositionRule rule, std::string sentence) {
    broken.push_back({rule, std::move(sentence)});
  };
  const auto too_many = [&](Bitboard squares, int most, PositionRule rule, const char* what) {
    if (count(squares) > most) breaks(rule, fmt::format("{} {}, and {} are possible", count(squares), what, most));
  };
  using enum PositionRule;
  const Bitboard white = p.of(Side::kWhite), black = p.of(Side::kBlack);
  if (!p.occupied()) breaks(kEmpty, "the board is empty");
  if (!(p.kings & white)) breaks(kNoWhiteKing, "White has no king");
  if (!(p.kings & black)) breaks(kNoBlackKing, "Black has no king");
  if (count(p.kings) > 2) breaks(kTooManyKings, fmt::format("there are {} kings", count(p.kings)));
  too_many(white, 16, kTooManyWhitePieces, "white pieces");
  too_many(black, 16, kTooManyBlackPieces, "black pieces");
  too_many(p.pawns & white, 8, kTooManyWhitePawns, "white pawns");
  too_many(p.pawns & black, 8, kTooManyBlackPawns, "black pawns");
  if (const Bitboard pawns = p.pawns & (kRank1 | kRank8))
    breaks(kPawnsOnBackrank, fmt::format("there is a pawn on {}, on a last rank", square_name(lowest(pawns))));
  if (std::string wrong = wrong_castling(p, foreign_castling); !wrong.empty())
    breaks(kBadCastlingRights, std::move(wrong));
  std::string wrong = wrong_en_passant(p, en_passant);
  const Square possible_en_passant = wrong.empty() ? en_passant : -1;
  if (!wrong.empty()) breaks(kInvalidEpSquare, std::move(wrong));

  const Side us = p.side_to_move, them = other(us);
  const Bitboard king = highest_king(p, us), their_king = highest_king(p, them);
  if (their_king && attackers(p, us, lowest(their_king), p.occupied()))
    breaks(kOppositeCheck, fmt::format("{} is to move, but {}'s king is in check", name_of(us), name_of(them)));
  if (const Bitboard checkers = king ? attackers(p, them, lowest(king), p.occupied()) : 0) {
    if (count(checkers) > 2)
      breaks(kTooManyCheckers, fmt::format("{} pieces give check at once, and two are possible", count(checkers)));
    if (is_impossible_check(p, checkers, possible_en_passant))
      breaks(kImpossibleCheck, "no last move can have given this check");
  }
  return broken;
}

}  // namespace tandem::chess
