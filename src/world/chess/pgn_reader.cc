#include <fmt/format.h>

#include <istream>

#include "base/printable.h"
#include "world/chess/notation.h"
#include "world/chess/pgn.h"

namespace tandem::chess {
namespace {

bool is_space(int c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\f' || c == '\v'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_result(std::string_view word) { return word == "1-0" || word == "0-1" || word == "1/2-1/2" || word == "*"; }
// "12", "12.", "12...", "..." before a move or alone.
std::string_view without_number(std::string_view word) {
  size_t digits = 0;
  while (digits < word.size() && is_digit(word[digits])) ++digits;
  if (digits == word.size()) return {};
  if (word[digits] != '.') return word;
  word.remove_prefix(digits);
  while (!word.empty() && word.front() == '.') word.remove_prefix(1);
  return word;
}

// "23... Qxe9": the move as a reader finds it in a score sheet.
std::string numbered(const Position& position, std::string_view move) {
  return fmt::format("{}{} {}", position.fullmove_number, position.side_to_move == Side::kWhite ? "." : "...",
                     printable(move.substr(0, 20)));
}

}  // namespace

std::string PgnFault::text() const {
  return fmt::format("game {}, line {}: {}{}{}", game, line, move, move.empty() ? "" : ": ", why);
}

PgnReader::PgnReader(std::istream& in, const PgnLimits& limits) : in_(*in.rdbuf()), limits_(limits) {}

int PgnReader::peek() const {
  const auto c = in_.sgetc();
  return c == std::streambuf::traits_type::eof() ? kEnd : c;
}

int PgnReader::take() {
  const auto c = in_.sbumpc();
  if (c == std::streambuf::traits_type::eof()) return kEnd;
  line_start_ = c == '\n' || (line_start_ && is_space(c));
  line_ += c == '\n';
  return c;
}

void PgnReader::blame(std::string why, std::string move) {
  if (!fault_) fault_ = PgnFault{games_, line_, std::move(move), std::move(why)};
}

void PgnReader::skip_line() {
  while (peek() != kEnd && take() != '\n') continue;
}

void PgnReader::skip_comment() {
  const int64_t begun = line_;
  while (peek() != kEnd)
    if (take() == '}') return;
  blame(fmt::format("the comment that begins with {{ in line {} does not end", begun));
}

void PgnReader::skip_variation() {
  const int64_t begun = line_;
  for (int64_t depth = 1; peek() != kEnd;) {
    const int c = take();
    if (c == '{') skip_comment();
    if (c == ';') skip_line();
    if (c == '(') ++depth;
    if (c == ')' && --depth == 0) return;
  }
  blame(fmt::format("the variation that begins with ( in line {} does not end", begun));
}

void PgnReader::skip_blanks() {
  while (true) {
    const int c = peek();
    if (c == '%' && line_start_) {
      skip_line();
    } else if (c == ';') {
      skip_line();
    } else if (c == '{') {
      take();
      skip_comment();
    } else if (is_space(c)) {
      take();
    } else {
      return;
    }
  }
}

// After [: a name, a text between quotes, and ]. In the text, \ stands before " and \; as some programs write them
// without, a " that ] does not follow belongs to the text.
bool PgnReader::read_tag(std::string& name, std::string& value) {
  const auto blanks = [this] {
    while (peek() == ' ' || peek() == '\t') take();
  };
  blanks();
  while (peek() != kEnd && !is_space(peek()) && peek() != '"' && peek() != ']' && name.size() <= limits_.longest_word)
    name += static_cast<char>(take());
  blanks();
  if (name.empty() || name.size() > limits_.longest_word || peek() != '"') return false;
  take();
  while (true) {
    int c = peek() == '\n' ? kEnd : take();
    if (c == kEnd || value.size() >= limits_.longest_word) return false;
    if (c == '"') {
      const size_t end = value.size();
      value += '"';
      while ((peek() == ' ' || peek() == '\t') && value.size() < limits_.longest_word)
        value += static_cast<char>(take());
      if (peek() != ']') continue;
      take();
      value.resize(end);
      return true;
    }
    if (c == '\\' && (peek() == '"' || peek() == '\\')) c = take();
    value += static_cast<char>(c == '\r' ? ' ' : c);
  }
}

void PgnReader::read_tags(PgnGame& game) {
  std::string fen;
  int64_t fen_line = 0;
  for (skip_blanks(); peek() == '['; skip_blanks()) {
    take();
    std::string name, value;
    const int64_t line = line_;
    if (!read_tag(name, value)) {
      blame("a tag is not of the form [Name \"value\"]");
      if (line == line_) skip_line();
      continue;
    }
    if (name == "FEN") {
      fen = value;
      fen_line = line;
    } else if (name == "Result") {
      if (is_result(value)) game.result = value;
    } else if (name != "SetUp") {
      if (game.tags.size() >= limits_.most_tags)
        blame(fmt::format("it has more than {} tags", limits_.most_tags));
      else
        game.set_tag(name, value);
    }
  }
  if (fen_line == 0) return;
  const FenReading reading = read_fen(fen);
  if (reading.good()) {
    game.game = Game(reading.position);
  } else if (!fault_) {
    blame("its FEN: " + reading.complaint());
    fault_->line = fen_line;
  }
}

// Up to a blank or to what begins something else. Longer than the limit: its beginning; the rest is skipped.
std::string PgnReader::read_word() {
  std::string word;
  while (true) {
    const int c = peek();
    if (c == kEnd || is_space(c) || std::string_view("{}()[];$").find(static_cast<char>(c)) != std::string_view::npos)
      return word;
    take();
    if (word.size() < limits_.longest_word)
      word += static_cast<char>(c);
    else
      blame(fmt::format("a word has more than {} bytes", limits_.longest_word));
  }
}

void PgnReader::play_word(PgnGame& game, std::string_view word) {
  const Position& position = game.game.position();
  word = without_number(word);
  const std::string_view said = word;
  while (!word.empty() && (word.back() == '!' || word.back() == '?')) word.remove_suffix(1);
  if (word.empty() || word == "e.p.") return;
  const MoveReading reading = read_san(position, word);
  if (!reading.good()) return blame(reading.why, numbered(position, said));
  if (game.game.moves().size() >= limits_.most_moves)
    return blame(fmt::format("it has more than {} moves", limits_.most_moves));
  game.game.play(reading.move);
}

void PgnReader::read_moves(PgnGame& game) {
  while (true) {
    skip_blanks();
    const int c = peek();
    if (c == kEnd) return;
    if (c == '[' && line_start_) return;  // the next game: this one has no result
    if (c == '(') {
      take();
      skip_variation();
    } else if (c == '$') {
      take();
      while (peek() >= '0' && peek() <= '9') take();
    } else if (c == ')' || c == ']' || c == '}' || c == '[') {
      take();
      blame(fmt::format("a {} that belongs to nothing", static_cast<char>(c)));
    } else {
      const std::string word = read_word();
      if (is_result(word)) {
        game.result = word;
        return;
      }
      if (!fault_) play_word(game, word);
    }
  }
}

std::optional<PgnGame> PgnReader::next() {
  fault_.reset();
  if (games_ == 0 && peek() == 0xEF) {  // a byte-order mark
    for (const int byte : {0xEF, 0xBB, 0xBF})
      if (peek() == byte) take();
    line_start_ = true;
  }
  ++games_;
  skip_blanks();
  if (peek() == kEnd && !fault_) return std::nullopt;
  std::optional<PgnGame> game(std::in_place);
  read_tags(*game);
  read_moves(*game);
  return game;
}

}  // namespace tandem::chess
