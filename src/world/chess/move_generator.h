// world/chess/move_generator.h -- all legal moves, in one pass: pins and checks become masks, so that no move is made
// and taken back to see whether it was legal. Specialised for each side; the same on CPU and GPU.
//
// The generator hands sets of squares to a `Sink`, which counts them (perft.h), lists them, or sets bits of a mask:
//   king(from, targets), knight(from, targets), diagonal(from, targets), straight(from, targets)
//   pawns<kDelta>(targets)        one step, or a capture: from = to - kDelta
//   double_steps<kDelta>(targets)
//   promotions<kDelta>(targets)   each target stands for four moves
//   en_passant(from, to), castling(from, to)
// A queen comes twice, with its diagonal and with its straight targets. The order of calls is fixed, so that lists
// have one order everywhere.
#pragma once

#include "world/chess/make_move.h"

namespace tandem::chess {

// What `kThem` attacks, with `occupied` as the board sees it.
template <Side kThem, class Sliders>
TANDEM_HD Bitboard attacks_of(const Position& p, Bitboard theirs, Bitboard occupied) {
  Bitboard attacked =
      pawn_attacks<kThem>(p.pawns & theirs) | knight_attacks(p.knights & theirs) | king_attacks(p.kings & theirs);
  for (Bitboard left = p.diagonal & theirs; left;) attacked |= Sliders::diagonal(take_lowest(left), occupied);
  for (Bitboard left = p.straight & theirs; left;) attacked |= Sliders::straight(take_lowest(left), occupied);
  return attacked;
}

// The pieces of `theirs`, of side kThem, that attack the square.
template <Side kThem, class Sliders>
TANDEM_HD Bitboard attackers_of(const Position& p, Square square, Bitboard theirs, Bitboard occupied) {
  const Bitboard b = bit(square);
  return theirs &
         ((pawn_attacks<other(kThem)>(b) & p.pawns) | (knight_attacks(b) & p.knights) | (king_attacks(b) & p.kings) |
          (Sliders::diagonal(square, occupied) & p.diagonal) | (Sliders::straight(square, occupied) & p.straight));
}

template <Side kUs, class Sliders, class Sink>
TANDEM_HD void generate_moves(const Position& p, Sink& sink) {
  constexpr bool kWhite = kUs == Side::kWhite;
  constexpr Side kThem = other(kUs);
  const Bitboard occupied = p.occupied(), empty = ~occupied;
  const Bitboard ours = kWhite ? p.white : occupied & ~p.white, theirs = occupied & ~ours;
  const Bitboard king_bit = p.kings & ours;
  const Square king = lowest(king_bit);

  // ---- checks and pins, seen from the king ----
  // A sliding piece that would attack the king on a board without our pieces: with one of ours between it pins that
  // piece to the line, with none it checks.
  Bitboard checkers = theirs & ((pawn_attacks<kUs>(king_bit) & p.pawns) | (knight_attacks(king_bit) & p.knights));
  Bitboard check_mask = checkers;  // where a move ends a check: capture it or, of a sliding piece, step between
  Bitboard pinned_diagonal = 0, pinned_straight = 0;  // lines of pins, from the king to the pinning piece
  for (Bitboard left = Sliders::diagonal(king, theirs) & p.diagonal & theirs; left;) {
    const Square sniper = take_lowest(left);
    const Bitboard line = between(king, sniper) | bit(sniper), blockers = line & ours;
    if (!blockers) {
      checkers |= bit(sniper);
      check_mask |= line;
    } else if (at_most_one(blockers)) {
      pinned_diagonal |= line;
    }
  }
  for (Bitboard left = Sliders::straight(king, theirs) & p.straight & theirs; left;) {
    const Square sniper = take_lowest(left);
    const Bitboard line = between(king, sniper) | bit(sniper), blockers = line & ours;
    if (!blockers) {
      checkers |= bit(sniper);
      check_mask |= line;
    } else if (at_most_one(blockers)) {
      pinned_straight |= line;
    }
  }

  // ---- the king ----
  // Squares behind the king on a checking line are attacked too: the king does not shield them.
  const Bitboard king_targets = king_attacks(king_bit) & ~ours;
  Bitboard attacked = 0;
  if (king_targets | p.castling) attacked = attacks_of<kThem, Sliders>(p, theirs, occupied ^ king_bit);
  sink.king(king, king_targets & ~attacked);
  if (!at_most_one(checkers)) return;
  const Bitboard allowed = checkers ? check_mask : ~Bitboard{0};

  // ---- pawns, all at once; a pinned one only along its line ----
  constexpr int kUp = kWhite ? 1 : -1;
  constexpr Bitboard kLast = kWhite ? kRank8 : kRank1, kThird = rank_mask(kWhite ? 2 : 5);
  const Bitboard pawns = p.pawns & ours;
  const Bitboard steppers = pawns & ~pinned_diagonal, captors = pawns & ~pinned_straight;
  const Bitboard one =
      ((moved<0, kUp>(steppers & ~pinned_straight)) | (moved<0, kUp>(steppers & pinned_straight) & pinned_straight)) &
      empty;
  const Bitboard two = moved<0, kUp>(one & kThird) & empty & allowed;
  const Bitboard left =
      (moved<-1, kUp>(captors & ~pinned_diagonal) | (moved<-1, kUp>(captors & pinned_diagonal) & pinned_diagonal)) &
      theirs & allowed;
  const Bitboard right =
      (moved<1, kUp>(captors & ~pinned_diagonal) | (moved<1, kUp>(captors & pinned_diagonal) & pinned_diagonal)) &
      theirs & allowed;
  const Bitboard step = one & allowed;
  sink.template pawns<8 * kUp>(step & ~kLast);
  sink.template double_steps<16 * kUp>(two);
  sink.template pawns<8 * kUp - 1>(left & ~kLast);
  sink.template pawns<8 * kUp + 1>(right & ~kLast);
  if ((step | left | right) & kLast) {
    sink.template promotions<8 * kUp>(step & kLast);
    sink.template promotions<8 * kUp - 1>(left & kLast);
    sink.template promotions<8 * kUp + 1>(right & kLast);
  }
  if (p.en_passant) {
    const Square to = p.en_passant, captured = to - 8 * kUp;
    if (allowed & (bit(to) | bit(captured)))
      for (Bitboard from = pawn_attacks<kThem>(bit(to)) & pawns; from;) {
        const Square square = take_lowest(from);
        if (!en_passant_exposes_king<kUs, Sliders>(p, square, to, captured)) sink.en_passant(square, to);
      }
  }

  // ---- pieces ----
  const Bitboard pinned = pinned_diagonal | pinned_straight, targets = ~ours & allowed;
  for (Bitboard from = p.knights & ours & ~pinned; from;) {
    const Square square = take_lowest(from);
    sink.knight(square, knight_attacks(bit(square)) & targets);
  }
  const Bitboard diagonal = p.diagonal & ours & ~pinned_straight, straight = p.straight & ours & ~pinned_diagonal;
  for (Bitboard from = diagonal & ~pinned_diagonal; from;) {
    const Square square = take_lowest(from);
    sink.diagonal(square, Sliders::diagonal(square, occupied) & targets);
  }
  for (Bitboard from = diagonal & pinned_diagonal; from;) {
    const Square square = take_lowest(from);
    sink.diagonal(square, Sliders::diagonal(square, occupied) & targets & pinned_diagonal);
  }
  for (Bitboard from = straight & ~pinned_straight; from;) {
    const Square square = take_lowest(from);
    sink.straight(square, Sliders::straight(square, occupied) & targets);
  }
  for (Bitboard from = straight & pinned_straight; from;) {
    const Square square = take_lowest(from);
    sink.straight(square, Sliders::straight(square, occupied) & targets & pinned_straight);
  }

  // ---- castling: nothing between king and rook, no attacked square on the king's way ----
  constexpr uint8_t kShort = kWhite ? kWhiteShort : kBlackShort, kLong = kWhite ? kWhiteLong : kBlackLong;
  constexpr Square kHome = kWhite ? 4 : 60;
  if ((p.castling & (kShort | kLong)) && !checkers) {
    constexpr Bitboard kShortWay = bit(kHome + 1) | bit(kHome + 2);
    constexpr Bitboard kLongWay = bit(kHome - 1) | bit(kHome - 2), kLongEmpty = kLongWay | bit(kHome - 3);
    if ((p.castling & kShort) && !(kShortWay & (occupied | attacked))) sink.castling(kHome, kHome + 2);
    if ((p.castling & kLong) && !(kLongEmpty & occupied) && !(kLongWay & attacked)) sink.castling(kHome, kHome - 2);
  }
}

// Adds moves to a list.
struct ListSink {
  MoveList& list;

  TANDEM_HD void add_all(Square from, Bitboard targets) {
    while (targets) list.add(Move(from, take_lowest(targets)));
  }
  TANDEM_HD void king(Square from, Bitboard targets) { add_all(from, targets); }
  TANDEM_HD void knight(Square from, Bitboard targets) { add_all(from, targets); }
  TANDEM_HD void diagonal(Square from, Bitboard targets) { add_all(from, targets); }
  TANDEM_HD void straight(Square from, Bitboard targets) { add_all(from, targets); }
  template <int kDelta>
  TANDEM_HD void pawns(Bitboard targets) {
    while (targets) {
      const Square to = take_lowest(targets);
      list.add(Move(to - kDelta, to));
    }
  }
  template <int kDelta>
  TANDEM_HD void double_steps(Bitboard targets) {
    while (targets) {
      const Square to = take_lowest(targets);
      list.add(Move(to - kDelta, to, MoveKind::kDoubleStep));
    }
  }
  template <int kDelta>
  TANDEM_HD void promotions(Bitboard targets) {
    while (targets) {
      const Square to = take_lowest(targets);
      for (int kind = static_cast<int>(MoveKind::kToQueen); kind >= static_cast<int>(MoveKind::kToKnight); --kind)
        list.add(Move(to - kDelta, to, static_cast<MoveKind>(kind)));
    }
  }
  TANDEM_HD void en_passant(Square from, Square to) { list.add(Move(from, to, MoveKind::kEnPassant)); }
  TANDEM_HD void castling(Square from, Square to) { list.add(Move(from, to, MoveKind::kCastling)); }
};

// Counts moves.
struct CountSink {
  int moves = 0;

  TANDEM_HD void king(Square, Bitboard targets) { moves += count(targets); }
  TANDEM_HD void knight(Square, Bitboard targets) { moves += count(targets); }
  TANDEM_HD void diagonal(Square, Bitboard targets) { moves += count(targets); }
  TANDEM_HD void straight(Square, Bitboard targets) { moves += count(targets); }
  template <int kDelta>
  TANDEM_HD void pawns(Bitboard targets) {
    moves += count(targets);
  }
  template <int kDelta>
  TANDEM_HD void double_steps(Bitboard targets) {
    moves += count(targets);
  }
  template <int kDelta>
  TANDEM_HD void promotions(Bitboard targets) {
    moves += 4 * count(targets);
  }
  TANDEM_HD void en_passant(Square, Square) { ++moves; }
  TANDEM_HD void castling(Square, Square) { ++moves; }
};

template <class Sliders = ComputedSliders, class Sink>
TANDEM_HD void generate_legal_moves(const Position& position, Sink& sink) {
  if (position.side_to_move == Side::kWhite)
    generate_moves<Side::kWhite, Sliders>(position, sink);
  else
    generate_moves<Side::kBlack, Sliders>(position, sink);
}

// Is the king of the side to move attacked?
template <class Sliders = ComputedSliders>
TANDEM_HD bool king_is_attacked(const Position& p) {
  const Bitboard occupied = p.occupied();
  if (p.side_to_move == Side::kWhite)
    return attackers_of<Side::kBlack, Sliders>(p, p.king(Side::kWhite), occupied & ~p.white, occupied);
  return attackers_of<Side::kWhite, Sliders>(p, p.king(Side::kBlack), p.white, occupied);
}

}  // namespace tandem::chess
