#include "apps/chess/play/uci_position.h"

#include <fmt/format.h>

#include "apps/chess/uci/uci_words.h"
#include "world/chess/fen.h"
#include "world/chess/notation.h"

namespace tandem::chess {
namespace {

constexpr size_t kLongestMove = 20, kLongestFen = 120;

}  // namespace

// All of them or none.
std::string UciPosition::play(Game& game, std::string_view moves) {
  UciWords words(moves);
  int count = 0;
  for (std::string_view word = words.next(); !word.empty(); word = words.next()) {
    const MoveReading reading = read_uci(game.position(), word);
    ++moves_read_;
    if (!reading.good()) {
      const std::string fault = fmt::format("illegal move {}, number {}: {}; the position stays as it was",
                                            beginning_of(word, kLongestMove), game.moves().size() + 1, reading.why);
      game.undo(count);
      return fault;
    }
    game.play(reading.move);
    ++count;
  }
  return "";
}

std::string UciPosition::set(std::string_view line, const UciInput& input) {
  const bool goes_on =
      !line_.empty() && line.starts_with(line_) && (line.size() == line_.size() || line[line_.size()] == ' ');
  std::string fault;
  if (goes_on) {
    fault = play(game_, line.substr(line_.size()));
  } else {
    Game game;
    if (!input.from_start) {
      const FenReading reading = read_fen(input.fen);
      if (!reading.good())
        return fmt::format("no position \"{}\": {}; the position stays as it was", beginning_of(input.fen, kLongestFen),
                           reading.complaint());
      game = Game(reading.position);
    }
    fault = play(game, input.moves);
    if (fault.empty()) game_ = std::move(game);
  }
  if (fault.empty()) line_ = input.moves.empty() ? "" : line;
  return fault;
}

}  // namespace tandem::chess
