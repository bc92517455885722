#include "world/chess/fen.h"

#include <fmt/format.h>

#include <charconv>

#include "base/errors.h"
#include "base/printable.h"
#include "world/chess/moves.h"
#include "world/chess/position_rules.h"

namespace tandem::chess {
namespace {

constexpr std::string_view kPieceLetters = "pnbrqk", kCastlingLetters = "KQkq";
constexpr size_t kMostFields = 6, kLongestFen = 256;

struct Fields {
  std::string_view field[kMostFields];
  size_t count = 0;
};

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\f' || c == '\v'; }

std::string shown(std::string_view text) {
  constexpr size_t kMost = 100;
  return text.size() <= kMost ? printable(text) : printable(text.substr(0, kMost)) + "...";
}

std::string split_fields(std::string_view text, Fields& fields) {
  if (text.size() > kLongestFen) return fmt::format("it has {} characters, a FEN at most {}", text.size(), kLongestFen);
  while (true) {
    while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
    if (text.empty()) return fields.count == 0 ? "it is empty" : "";
    if (fields.count == kMostFields) return "it has more than six fields";
    size_t end = 0;
    while (end < text.size() && !is_blank(text[end])) ++end;
    fields.field[fields.count++] = text.substr(0, end);
    text.remove_prefix(end);
  }
}

std::string read_board(std::string_view board, Position& position) {
  int rank = 7, file = 0;
  char before = '/';
  for (const char c : board) {
    const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    const size_t type = kPieceLetters.find(lower);
    if (c == '/') {
      if (file != 8) return fmt::format("rank {} has {} squares instead of 8", rank + 1, file);
      if (--rank < 0) return "the board has more than 8 ranks";
      file = 0;
    } else if (c >= '1' && c <= '8') {
      if (before >= '1' && before <= '8') return fmt::format("rank {} has two numbers in a row", rank + 1);
      file += c - '0';
    } else if (c == '~') {  // after a promoted piece, in some programs' FENs
      if (kPieceLetters.find(static_cast<char>(before | 32)) == std::string_view::npos)
        return fmt::format("rank {} has a ~ that follows no piece", rank + 1);
    } else if (type != std::string_view::npos) {
      if (file < 8)
        position.put(c == lower ? Side::kBlack : Side::kWhite, static_cast<PieceType>(type), square_at(file, rank));
      ++file;
    } else {
      return fmt::format("\"{}\" is no piece: PNBRQK are White's, pnbrqk Black's", printable({&c, 1}));
    }
    if (file > 8) return fmt::format("rank {} has more than 8 squares", rank + 1);
    before = c;
  }
  if (rank != 0) return fmt::format("the board has {} ranks instead of 8, divided by /", 8 - rank);
  if (file != 8) return fmt::format("rank 1 has {} squares instead of 8", file);
  return "";
}

// Letters of files are understood where they mean the usual rooks (HAha is KQkq); of other files they are kept as a
// right that no position has.
std::string read_castling(std::string_view text, Position& position, uint8_t& foreign) {
  if (text == "-") return "";
  size_t capitals = 0, small = 0;
  for (const char c : text) {
    const bool capital = c >= 'A' && c <= 'Z';
    const char lower = capital ? static_cast<char>(c - 'A' + 'a') : c;
    if (lower != 'k' && lower != 'q' && (lower < 'a' || lower > 'h'))
      return fmt::format("\"{}\" is no castling right: the field is - or some of KQkq", printable({&c, 1}));
    if (++(capital ? capitals : small) > 2 || (capital && small > 0))
      return fmt::format("\"{}\" are no castling rights: the field is - or some of KQkq", shown(text));
    if (lower == 'k' || lower == 'h')
      position.castling |= capital ? kWhiteShort : kBlackShort;
    else if (lower == 'q' || lower == 'a')
      position.castling |= capital ? kWhiteLong : kBlackLong;
    else
      foreign |= 1;
  }
  return "";
}

bool read_square(std::string_view text, Square& square) {
  if (text.size() != 2 || text[0] < 'a' || text[0] > 'h' || text[1] < '1' || text[1] > '8') return false;
  square = square_at(text[0] - 'a', text[1] - '1');
  return true;
}

std::string read_counter(std::string_view text, const char* name, uint16_t& counter) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), counter);
  if (error == std::errc() && end == text.data() + text.size()) return "";
  return fmt::format("\"{}\" is no {}: a whole number up to 65535", shown(text), name);
}

}  // namespace

std::string square_name(Square square) {
  return {static_cast<char>('a' + file_of(square)), static_cast<char>('1' + rank_of(square))};
}

FenReading read_fen(std::string_view text) {
  FenReading reading;
  Position& p = reading.position;
  std::string& wrong = reading.syntax;
  Fields fields;
  wrong = split_fields(text, fields);
  if (wrong.empty()) wrong = read_board(fields.field[0], p);
  if (wrong.empty() && fields.count > 1) {
    if (fields.field[1] == "b")
      p.side_to_move = Side::kBlack;
    else if (fields.field[1] != "w")
      wrong = fmt::format("\"{}\" is no side to move: it is w or b", shown(fields.field[1]));
  }
  uint8_t foreign_castling = 0;
  if (wrong.empty() && fields.count > 2) wrong = read_castling(fields.field[2], p, foreign_castling);
  Square en_passant = -1;
  if (wrong.empty() && fields.count > 3 && fields.field[3] != "-" && !read_square(fields.field[3], en_passant))
    wrong = fmt::format("\"{}\" is no en-passant square: it is - or a square as e3", shown(fields.field[3]));
  if (wrong.empty() && fields.count > 4) wrong = read_counter(fields.field[4], "half-move clock", p.halfmove_clock);
  if (wrong.empty() && fields.count > 5) wrong = read_counter(fields.field[5], "move number", p.fullmove_number);
  if (!wrong.empty()) return reading;

  if (p.fullmove_number == 0) p.fullmove_number = 1;  // some programs count from 0
  reading.broken = rules_broken_by(p, en_passant, foreign_castling != 0);
  if (!reading.broken.empty()) return reading;
  if (en_passant >= 0) {
    p.en_passant = static_cast<uint8_t>(en_passant);
    MoveList list;
    legal_moves(p, list);
    bool capture = false;
    for (const Move move : list) capture = capture || move.kind() == MoveKind::kEnPassant;
    if (!capture) p.en_passant = 0;
  }
  p.hash = hash_of(p);
  return reading;
}

std::string FenReading::complaint() const {
  std::string all = syntax;
  for (const BrokenRule& rule : broken) all += (all.empty() ? "" : "; ") + rule.sentence;
  return all;
}

Position position_of_fen(std::string_view text) {
  const FenReading reading = read_fen(text);
  if (reading.good()) return reading.position;
  throw ConfigError(
      fmt::format("{}: \"{}\"", reading.syntax.empty() ? "this position is impossible" : "this is no FEN", shown(text)),
      reading.complaint(), fmt::format("correct it; the starting position, for example, is \"{}\"", kStartFen));
}

std::string fen_of(const Position& position) {
  std::string text;
  for (int rank = 7; rank >= 0; --rank) {
    int empty = 0;
    for (int file = 0; file < 8; ++file) {
      const Square square = square_at(file, rank);
      const PieceType type = position.type_at(square);
      if (type == PieceType::kNone) {
        ++empty;
        continue;
      }
      if (empty) text += static_cast<char>('0' + empty);
      empty = 0;
      const char letter = kPieceLetters[static_cast<size_t>(type)];
      text += position.side_at(square) == Side::kWhite ? static_cast<char>(letter - 'a' + 'A') : letter;
    }
    if (empty) text += static_cast<char>('0' + empty);
    if (rank > 0) text += '/';
  }
  text += position.side_to_move == Side::kWhite ? " w " : " b ";
  for (size_t right = 0; right < 4; ++right)
    if (position.castling >> right & 1) text += kCastlingLetters[right];
  if (position.castling == 0) text += '-';
  text += ' ' + (position.en_passant ? square_name(position.en_passant) : std::string("-"));
  return fmt::format("{} {} {}", text, position.halfmove_clock, position.fullmove_number);
}

Position start_position() {
  static const Position start = read_fen(kStartFen).position;
  return start;
}

}  // namespace tandem::chess
