#include "apps/chess/play/uci_input.h"

#include <charconv>
#include <limits>
#include <utility>

#include "apps/chess/uci/uci_words.h"

namespace tandem::chess {
namespace {

// From the beginning of one part of a line to that of another.
std::string_view from_to(std::string_view from, std::string_view to) {
  return UciWords::without_blanks({from.data(), static_cast<size_t>(to.data() - from.data())});
}

UciCommand command_of(std::string_view word) {
  static constexpr std::pair<std::string_view, UciCommand> kCommands[] = {
      {"uci", UciCommand::kUci},           {"debug", UciCommand::kDebug},
      {"isready", UciCommand::kIsReady},   {"setoption", UciCommand::kSetOption},
      {"register", UciCommand::kRegister}, {"ucinewgame", UciCommand::kNewGame},
      {"position", UciCommand::kPosition}, {"go", UciCommand::kGo},
      {"stop", UciCommand::kStop},         {"ponderhit", UciCommand::kPonderHit},
      {"quit", UciCommand::kQuit}};
  for (const auto& [name, command] : kCommands)
    if (word == name) return command;
  return UciCommand::kNone;
}

void complain(UciInput& input, std::string_view about, std::string_view why) {
  if (!input.complaint.empty()) return;
  input.complaint_about = about;
  input.complaint = why;
}

// A number beyond 64 bits is the nearest one that there is.
std::optional<int64_t> whole_number(std::string_view word) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (word.empty() || end != word.data() + word.size() || error == std::errc::invalid_argument) return std::nullopt;
  if (error == std::errc::result_out_of_range)
    value = word.front() == '-' ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max();
  return value;
}

// setoption name <words> [value <words>]
void read_option(UciInput& input, UciWords words) {
  if (words.next() != "name") return complain(input, "setoption", "it needs `name` and the name of an option");
  const std::string_view from = words.rest();
  for (std::string_view word = words.next(); !word.empty(); word = words.next()) {
    if (word != "value") continue;
    input.option = from_to(from, word);
    input.value = words.rest();
    return;
  }
  input.option = from;
}

// position startpos|fen <fields> [moves <words>]
void read_position(UciInput& input, UciWords words) {
  std::string_view word = words.next();
  while (!word.empty() && word != "startpos" && word != "fen") word = words.next();
  if (word.empty()) return complain(input, "position", "it needs `startpos`, or `fen` and a position");
  input.from_start = word == "startpos";
  const std::string_view from = words.rest();
  std::string_view fen = from;
  for (word = words.next(); !word.empty(); word = words.next()) {
    if (word != "moves") continue;
    fen = from_to(from, word);
    input.moves = words.rest();
    break;
  }
  if (!input.from_start) input.fen = fen;
}

struct GoNumber {
  std::string_view name;
  std::optional<int64_t> GoLimits::*limit;
};
constexpr GoNumber kGoNumbers[] = {
    {"wtime", &GoLimits::white_time},     {"btime", &GoLimits::black_time},      {"winc", &GoLimits::white_increment},
    {"binc", &GoLimits::black_increment}, {"movestogo", &GoLimits::moves_to_go}, {"movetime", &GoLimits::move_time},
    {"nodes", &GoLimits::nodes},          {"depth", &GoLimits::depth},           {"mate", &GoLimits::mate}};

const GoNumber* go_number(std::string_view word) {
  for (const GoNumber& one : kGoNumbers)
    if (one.name == word) return &one;
  return nullptr;
}

bool is_go_word(std::string_view word) {
  return go_number(word) || word == "infinite" || word == "ponder" || word == "searchmoves";
}

void read_go(UciInput& input, UciWords words) {
  std::string_view word = words.next();
  while (!word.empty()) {
    if (const GoNumber* const number = go_number(word)) {
      const std::string_view text = words.next();
      const std::optional<int64_t> value = whole_number(text);
      if (!value) {
        complain(input, word, "it needs a whole number");
        word = text;  // perhaps the next limit
        continue;
      }
      input.go.*number->limit = value;
    } else if (word == "infinite") {
      input.go.infinite = true;
    } else if (word == "ponder") {
      input.go.ponder = true;
    } else if (word == "searchmoves") {
      const std::string_view from = words.rest();
      for (word = words.next(); !word.empty() && !is_go_word(word);) word = words.next();
      input.go.search_moves = word.empty() ? from : from_to(from, word);
      continue;
    }
    word = words.next();
  }
}

}  // namespace

UciInput read_uci_input(std::string_view line) {
  UciInput input;
  UciWords words(line);
  std::string_view word = words.next();
  while (!word.empty() && command_of(word) == UciCommand::kNone) word = words.next();
  input.command = command_of(word);
  if (input.command == UciCommand::kSetOption) read_option(input, words);
  if (input.command == UciCommand::kPosition) read_position(input, words);
  if (input.command == UciCommand::kGo) read_go(input, words);
  return input;
}

}  // namespace tandem::chess
