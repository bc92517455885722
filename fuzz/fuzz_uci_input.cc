// fuzz/fuzz_uci_input.cc -- what a GUI sends to our UCI engine (apps/chess/play/): lines of any bytes, one after the
// other.
//
// Beyond not crashing: texts refer to the line; a position that goes on from the line before is the one that the line
// alone gives; a line that is refused changes nothing; time for a move is never nothing.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "apps/chess/play/time_budget.h"
#include "apps/chess/play/uci_input.h"
#include "apps/chess/play/uci_options.h"
#include "apps/chess/play/uci_position.h"

namespace {

void require(bool good) {
  if (!good) std::abort();
}

bool inside(std::string_view part, std::string_view line) {
  return part.empty() || (part.data() >= line.data() && part.data() + part.size() <= line.data() + line.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem::chess;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const PlayerChoice choice{.name = "minimax", .depth = 2, .deepest = 6};
  UciOptions options(choice);
  UciPosition position;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(line.size() == rest.size() ? line.size() : line.size() + 1);
    const UciInput input = read_uci_input(line);
    for (const std::string_view part :
         {input.option, input.value.value_or(""), input.fen, input.moves, input.go.search_moves})
      require(inside(part, line));
    require(input.complaint.empty() == input.complaint_about.empty());
    if (!input.option.empty()) require(options.set(input.option, input.value.value_or("")).size() < 1000);
    require(options.settings().depth >= 1 && options.settings().depth <= 6 && options.nodes() >= 0);
    for (const Side side : {Side::kWhite, Side::kBlack}) {
      const auto time = time_for_move(input.go, side, options.overhead());
      require(!time || time->count() >= 1);
    }
    if (!input.from_start && input.fen.empty()) continue;
    UciPosition alone;
    const Game before = position.game();
    const bool good = position.set(line, input).empty();
    require(good == alone.set(line, input).empty());
    const Game& expected = good ? alone.game() : before;
    require(position.game().position() == expected.position());
    require(position.game().moves().size() == expected.moves().size());
  }
  return 0;
}
