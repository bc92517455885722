#include "apps/chess/play/board_text.h"

#include <fmt/format.h>

#include <string_view>

namespace tandem::chess {
namespace {

// Of xterm's 256 colours: light and dark squares, the same where the last move was, and the two sides.
constexpr int kLight = 180, kDark = 137, kLightMarked = 186, kDarkMarked = 143, kWhiteInk = 231, kBlackInk = 16;

// Outlines are White's and filled shapes Black's on plain paper; in colour both are filled, and the ink tells them.
constexpr const char* kOutlined[] = {"♙", "♘", "♗", "♖", "♕", "♔"};
constexpr const char* kFilled[] = {"♟", "♞", "♝", "♜", "♛", "♚"};
constexpr std::string_view kCapitals = "PNBRQK", kSmall = "pnbrqk";

bool is_light(Square square) { return has(kLightSquares, square); }

// Dots show which squares are dark.
std::string empty_text(Square square, const BoardStyle& style, bool marked) {
  if (style.color || (is_light(square) && !marked)) return " ";
  return style.unicode ? "·" : ".";
}

std::string piece_text(const Position& p, Square square, const BoardStyle& style, bool marked) {
  const PieceType type = p.type_at(square);
  if (type == PieceType::kNone) return empty_text(square, style, marked);
  const auto index = static_cast<size_t>(type);
  const bool white = p.side_at(square) == Side::kWhite;
  if (!style.unicode) return std::string(1, (white ? kCapitals : kSmall)[index]);
  return white && !style.color ? kOutlined[index] : kFilled[index];
}

std::string square_text(const Position& p, Square square, const BoardStyle& style, bool marked) {
  const std::string piece = piece_text(p, square, style, marked);
  if (!style.color) return fmt::format("{}{}{}", marked ? '[' : ' ', piece, marked ? ']' : ' ');
  const int paper = is_light(square) ? (marked ? kLightMarked : kLight) : (marked ? kDarkMarked : kDark);
  const int ink = has(p.white, square) ? kWhiteInk : kBlackInk;
  return fmt::format("\x1b[48;5;{}m\x1b[38;5;{}m {} ", paper, ink, piece);
}

}  // namespace

std::string board_text(const Position& position, Move last, const BoardStyle& style) {
  const bool white_below = style.bottom == Side::kWhite;
  std::string text;
  for (int row = 0; row < 8; ++row) {
    const int rank = white_below ? 7 - row : row;
    text += fmt::format(" {} ", rank + 1);
    for (int column = 0; column < 8; ++column) {
      const Square square = square_at(white_below ? column : 7 - column, rank);
      text += square_text(position, square, style, last && (square == last.from() || square == last.to()));
    }
    text += style.color ? "\x1b[0m\n" : "\n";
  }
  text += "   ";
  for (int column = 0; column < 8; ++column) text += fmt::format(" {} ", "abcdefgh"[white_below ? column : 7 - column]);
  return text + "\n";
}

}  // namespace tandem::chess
