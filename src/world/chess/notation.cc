#include "world/chess/notation.h"

#include <fmt/format.h>

#include "base/printable.h"

namespace tandem::chess {
namespace {

constexpr std::string_view kLetters = "PNBRQK";  // by PieceType
using Fault = MoveReading::Fault;

const char* piece_name(PieceType type) {
  constexpr const char* kNames[] = {"pawn", "knight", "bishop", "rook", "queen", "king", "piece"};
  return kNames[static_cast<size_t>(type)];
}

std::string shown_move(std::string_view text) {
  constexpr size_t kMost = 20;
  return text.size() <= kMost ? printable(text) : printable(text.substr(0, kMost)) + "...";
}

bool is_file(char c) { return c >= 'a' && c <= 'h'; }
bool is_rank(char c) { return c >= '1' && c <= '8'; }
char lower_letter(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// kNone: not one of nbrqk. Kings and pawns are understood here too: nothing becomes one, so that such a move is illegal
// rather than unreadable.
PieceType piece_of_letter(char c) {
  const size_t at = std::string_view("pnbrqk").find(lower_letter(c));
  return at == std::string_view::npos ? PieceType::kNone : static_cast<PieceType>(at);
}

MoveReading unreadable(std::string_view text, const char* notation) {
  return {Move(), Fault::kUnreadable, fmt::format("\"{}\" is no move in {}", shown_move(text), notation)};
}
MoveReading illegal(std::string why) { return {Move(), Fault::kIllegal, std::move(why)}; }

// The same squares whatever the rules say, so that a refusal can tell what is in the way.
bool reaches(const Position& p, Square from, Square to) {
  const Bitboard target = bit(to), occupied = p.occupied();
  const bool white = p.side_at(from) == Side::kWhite;
  switch (p.type_at(from)) {
    case PieceType::kPawn: {
      const Bitboard attacks = white ? pawn_attacks<Side::kWhite>(bit(from)) : pawn_attacks<Side::kBlack>(bit(from));
      if (attacks & target) return has(occupied, to) || (p.en_passant && p.en_passant == to);
      const Square step = white ? 8 : -8;
      if (to == from + step) return !has(occupied, to);
      return rank_of(from) == (white ? 1 : 6) && to == from + 2 * step && !has(occupied, to) &&
             !has(occupied, from + step);
    }
    case PieceType::kKnight:
      return knight_attacks(bit(from)) & target;
    case PieceType::kBishop:
      return ComputedSliders::diagonal(from, occupied) & target;
    case PieceType::kRook:
      return ComputedSliders::straight(from, occupied) & target;
    case PieceType::kQueen:
      return (ComputedSliders::diagonal(from, occupied) | ComputedSliders::straight(from, occupied)) & target;
    case PieceType::kKing:
      return king_attacks(bit(from)) & target;
    case PieceType::kNone:
      break;
  }
  return false;
}

// Why a move between two squares is none of the legal ones.
std::string why_illegal(const Position& p, Square from, Square to) {
  const PieceType type = p.type_at(from);
  const std::string from_name = square_name(from), to_name = square_name(to);
  if (type == PieceType::kNone) return fmt::format("there is no piece on {}", from_name);
  if (p.side_at(from) != p.side_to_move)
    return fmt::format("it is {}'s move, and the {} on {} is not theirs",
                       p.side_to_move == Side::kWhite ? "White" : "Black", piece_name(type), from_name);
  if (has(p.of(p.side_to_move), to)) return fmt::format("a piece of one's own is on {}", to_name);
  if (type == PieceType::kKing && rank_of(from) == rank_of(to) && (to == from + 2 || to == from - 2))
    return "castling is not possible here";
  if (!reaches(p, from, to)) return fmt::format("the {} on {} can't reach {}", piece_name(type), from_name, to_name);
  return in_check(p) ? "the king would still be in check" : "the king would be in check";
}

Move find_move(const MoveList& list, Square from, Square to, PieceType promotion) {
  for (const Move move : list)
    if (move.from() == from && move.to() == to && move.promotion() == promotion) return move;
  return Move();
}

// Some programs write castling as the king that takes its rook: e1h1. No king goes so far otherwise.
Square castling_target(const Position& p, Square from, Square to) {
  const Square home = p.side_to_move == Side::kWhite ? 4 : 60;
  if (from != home || !has(p.kings, from)) return to;
  return to == home + 3 ? home + 2 : to == home - 4 ? home - 2 : to;
}

MoveReading between_squares(const Position& p, Square from, Square to, PieceType promotion) {
  to = castling_target(p, from, to);
  MoveList list;
  legal_moves(p, list);
  if (const Move move = find_move(list, from, to, promotion)) return {move, Fault::kNone, ""};
  if (promotion == PieceType::kNone && find_move(list, from, to, PieceType::kQueen))
    return illegal("it must be said what the pawn becomes: q, r, b or n");
  if (promotion != PieceType::kNone && find_move(list, from, to, PieceType::kNone))
    return illegal("nothing is promoted by this move");
  if (promotion != PieceType::kNone && find_move(list, from, to, PieceType::kQueen))
    return illegal(fmt::format("a pawn can't become a {}", piece_name(promotion)));
  return illegal(why_illegal(p, from, to));
}

// What a SAN says, taken apart.
struct SanParts {
  PieceType piece = PieceType::kNone;  // none was named
  int file = -1, rank = -1;            // where it comes from, as far as said
  Square to = 0;
  PieceType promotion = PieceType::kNone;
};

// [NBKRQ] [a-h] [1-8] [-x] square [=][nbrqk] [+#]: every part but the square may be missing.
bool take_apart(std::string_view text, SanParts& parts) {
  if (!text.empty() && (text.back() == '+' || text.back() == '#')) text.remove_suffix(1);
  if (text.size() >= 3 && !is_rank(text.back())) {
    parts.promotion = piece_of_letter(text.back());
    if (parts.promotion == PieceType::kNone || parts.promotion == PieceType::kPawn) return false;
    text.remove_suffix(1);
    if (text.back() == '=') text.remove_suffix(1);
  }
  if (text.size() < 2 || !is_file(text[text.size() - 2]) || !is_rank(text.back())) return false;
  parts.to = square_at(text[text.size() - 2] - 'a', text.back() - '1');
  text.remove_suffix(2);
  if (!text.empty() && (text.back() == 'x' || text.back() == '-')) text.remove_suffix(1);
  if (!text.empty() && is_rank(text.back())) {
    parts.rank = text.back() - '1';
    text.remove_suffix(1);
  }
  if (!text.empty() && is_file(text.back())) {
    parts.file = text.back() - 'a';
    text.remove_suffix(1);
  }
  if (!text.empty() && text.back() != 'P' && kLetters.find(text.back()) != std::string_view::npos) {
    parts.piece = static_cast<PieceType>(kLetters.find(text.back()));
    text.remove_suffix(1);
  }
  return text.empty();
}

MoveReading read_castling_move(const Position& p, bool is_short) {
  MoveList list;
  legal_moves(p, list);
  for (const Move move : list)
    if (move.kind() == MoveKind::kCastling && (move.to() > move.from()) == is_short) return {move, Fault::kNone, ""};
  return illegal(fmt::format("castling on the {}'s side is not possible here", is_short ? "king" : "queen"));
}

// Why no legal move fits what is said; `from` holds the pieces that are meant.
std::string why_none_fits(const Position& p, const SanParts& parts, PieceType type, Bitboard from) {
  const std::string to = square_name(parts.to);
  if (!from) return fmt::format("there is no such {}", piece_name(type));
  if (has(p.of(p.side_to_move), parts.to)) return fmt::format("a piece of one's own is on {}", to);
  for (Bitboard left = from; left;) {
    const Square square = take_lowest(left);
    if (reaches(p, square, parts.to)) return between_squares(p, square, parts.to, parts.promotion).why;
  }
  return fmt::format("no {} can go to {}", piece_name(type), to);
}

}  // namespace

std::string uci_of(Move move) {
  if (!move) return "0000";
  std::string text = square_name(move.from()) + square_name(move.to());
  if (move.is_promotion()) text += lower_letter(kLetters[static_cast<size_t>(move.promotion())]);
  return text;
}

MoveReading read_uci(const Position& position, std::string_view text) {
  const bool squares = (text.size() == 4 || text.size() == 5) && is_file(text[0]) && is_rank(text[1]) &&
                       is_file(text[2]) && is_rank(text[3]);
  const PieceType promotion = squares && text.size() == 5 ? piece_of_letter(text[4]) : PieceType::kNone;
  if (!squares || (text.size() == 5 && (promotion == PieceType::kNone || text[4] != lower_letter(text[4]))))
    return unreadable(text, "UCI notation (e2e4, e7e8q, e1g1 for castling)");
  const Square from = square_at(text[0] - 'a', text[1] - '1'), to = square_at(text[2] - 'a', text[3] - '1');
  if (from == to) return unreadable(text, "UCI notation: both squares are the same");
  return between_squares(position, from, to, promotion);
}

std::string san_of(const Position& position, Move move) {
  std::string text;
  const PieceType type = position.type_at(move.from());
  MoveList list;
  if (move.kind() == MoveKind::kCastling) {
    text = move.to() > move.from() ? "O-O" : "O-O-O";
  } else {
    const bool captures = has(position.occupied(), move.to()) || move.kind() == MoveKind::kEnPassant;
    if (type == PieceType::kPawn) {
      if (captures) text += static_cast<char>('a' + file_of(move.from()));
    } else {
      text += kLetters[static_cast<size_t>(type)];
      legal_moves(position, list);
      Bitboard others = 0;  // of the same kind, that could go there too
      for (const Move m : list)
        if (m.to() == move.to() && m.from() != move.from() && position.type_at(m.from()) == type)
          others |= bit(m.from());
      if (others) {
        const bool same_file = others & file_mask(file_of(move.from()));
        const bool same_rank = others & rank_mask(rank_of(move.from()));
        if (!same_file || same_rank) text += static_cast<char>('a' + file_of(move.from()));
        if (same_file) text += static_cast<char>('1' + rank_of(move.from()));
      }
    }
    if (captures) text += 'x';
    text += square_name(move.to());
    if (move.is_promotion()) (text += '=') += kLetters[static_cast<size_t>(move.promotion())];
  }
  const Position next = after(position, move);
  if (in_check(next)) text += count_legal_moves(next) > 0 ? '+' : '#';
  return text;
}

MoveReading read_san(const Position& position, std::string_view text) {
  std::string_view castling = text;
  if (!castling.empty() && (castling.back() == '+' || castling.back() == '#')) castling.remove_suffix(1);
  if (castling == "O-O" || castling == "0-0") return read_castling_move(position, true);
  if (castling == "O-O-O" || castling == "0-0-0") return read_castling_move(position, false);

  SanParts parts;
  if (!take_apart(text, parts)) return unreadable(text, "SAN (e4, Nf3, exd5, e8=Q, O-O)");
  // Both coordinates and no piece: any piece may be meant, as in e2e4, b1c3, e1g1.
  if (parts.piece == PieceType::kNone && parts.file >= 0 && parts.rank >= 0)
    return between_squares(position, square_at(parts.file, parts.rank), parts.to, parts.promotion);

  const PieceType type = parts.piece == PieceType::kNone ? PieceType::kPawn : parts.piece;
  Bitboard from = position.of(type) & position.of(position.side_to_move);
  if (parts.file >= 0)
    from &= file_mask(parts.file);
  else if (type == PieceType::kPawn)  // a capture names its file
    from &= file_mask(file_of(parts.to));
  if (parts.rank >= 0) from &= rank_mask(parts.rank);

  MoveList list;
  legal_moves(position, list);
  Move found = Move();
  for (const Move move : list) {
    if (move.to() != parts.to || move.promotion() != parts.promotion || !has(from, move.from()) ||
        move.kind() == MoveKind::kCastling)
      continue;
    if (found)
      return {Move(), Fault::kAmbiguous,
              fmt::format("the {}s on {} and {} can both go to {}", piece_name(type), square_name(found.from()),
                          square_name(move.from()), square_name(parts.to))};
    found = move;
  }
  if (found) return {found, Fault::kNone, ""};
  return illegal(why_none_fits(position, parts, type, from));
}

MoveReading read_move(const Position& position, std::string_view text) {
  const MoveReading as_uci = read_uci(position, text);
  if (as_uci.fault != Fault::kUnreadable) return as_uci;
  const MoveReading as_san = read_san(position, text);
  if (as_san.fault != Fault::kUnreadable) return as_san;
  return unreadable(text, "UCI (e2e4, e7e8q) or SAN (e4, Nf3, e8=Q, O-O)");
}

}  // namespace tandem::chess
