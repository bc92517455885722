#include "apps/chess/play/typed_line.h"

#include <utility>
#include <vector>

#include "config/spelling.h"

namespace tandem::chess {
namespace {

constexpr std::pair<std::string_view, TypedCommand> kTypedCommands[] = {
    {"help", TypedCommand::kHelp},    {"?", TypedCommand::kHelp},    {"moves", TypedCommand::kMoves},
    {"undo", TypedCommand::kUndo},    {"draw", TypedCommand::kDraw}, {"resign", TypedCommand::kResign},
    {"flip", TypedCommand::kFlip},    {"fen", TypedCommand::kFen},   {"pgn", TypedCommand::kPgn},
    {"new", TypedCommand::kNew},      {"quit", TypedCommand::kQuit}, {"exit", TypedCommand::kQuit},
    {"takeback", TypedCommand::kUndo}};

std::string in_small(std::string_view text) {
  std::string small(text);
  for (char& c : small)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return small;
}

std::string_view without_blanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n\v\f";
  const size_t first = text.find_first_not_of(kBlanks);
  return first == text.npos ? std::string_view() : text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

}  // namespace

TypedLine read_typed_line(std::string_view line) {
  line = without_blanks(line);
  if (line.empty()) return {};
  TypedLine typed{TypedCommand::kMove, std::string(line.substr(0, line.find_first_of(" \t"))), ""};
  typed.rest = without_blanks(line.substr(typed.word.size()));
  const std::string word = in_small(typed.word);
  for (const auto& [name, command] : kTypedCommands)
    if (word == name) typed.command = command;
  return typed;
}

MoveReading read_typed_move(const Position& position, std::string_view text) {
  MoveReading best = read_move(position, text);  // or the one that comes nearest to a move
  if (best.good() || best.fault == MoveReading::Fault::kAmbiguous || text.empty()) return best;
  const std::string small = in_small(text);
  std::string piece = small;
  piece.front() = static_cast<char>(piece.front() >= 'a' && piece.front() <= 'z' ? piece.front() - 'a' + 'A' : '0');
  std::string castling = small;
  for (char& c : castling)
    if (c == 'o' || c == '0') c = 'O';
  for (const std::string& spelling : {small, piece, castling}) {
    MoveReading reading = read_move(position, spelling);
    if (reading.fault == MoveReading::Fault::kNone || reading.fault == MoveReading::Fault::kAmbiguous) return reading;
    if (reading.fault == MoveReading::Fault::kIllegal && best.fault == MoveReading::Fault::kUnreadable) best = reading;
  }
  return best;
}

std::string nearest_command(std::string_view word) {
  std::vector<std::string> names;
  for (const auto& [name, command] : kTypedCommands) names.emplace_back(name);
  return nearest_word(in_small(word), names);
}

}  // namespace tandem::chess
