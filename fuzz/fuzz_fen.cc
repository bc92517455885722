// fuzz/fuzz_fen.cc -- world/chess/fen.h and notation.h: the first line is any FEN, each further line any move in it.
//
// Beyond not crashing: a position that is read is written and read back the same; every variant of move generation
// gives the same moves; each has an action that leads back to it; some of them, chosen by the position, have names that
// lead back too, and lead to a position that can be read. A move that is read is legal.
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "world/chess/action_code.h"
#include "world/chess/fen.h"
#include "world/chess/game.h"
#include "world/chess/move_functions.h"
#include "world/chess/notation.h"

namespace {

using namespace tandem::chess;

constexpr uint64_t kMovesInFull = 3;

void require(bool good) {
  if (!good) std::abort();
}

bool same(const Position& a, const Position& b) { return std::memcmp(&a, &b, sizeof a) == 0; }

void check_position(const Position& position) {
  const FenReading again = read_fen(fen_of(position));
  require(again.good() && same(again.position, position) && position.hash == hash_of(position));
}

void check_moves(const Position& position, const MoveList& list) {
  for (const MoveFunctions* functions : {portable_moves(), bmi2_moves(), pext_moves()}) {
    if (!functions) continue;
    MoveList other;
    functions->legal_moves(position, other);
    require(other.size == list.size && functions->count_legal_moves(position) == list.size);
    for (int i = 0; i < list.size; ++i) require(other[i] == list[i]);
  }
  const ActionMask mask = legal_action_mask(list, position.side_to_move);
  for (const Move move : list) {
    const int action = action_of(move, position.side_to_move);
    require(mask.has(action) && move_of_action(position, action) == move);
  }
  for (uint64_t n = 0; n < kMovesInFull && list.size > 0; ++n) {
    const Move move = list[static_cast<int>((position.hash + n * 7) % static_cast<uint64_t>(list.size))];
    check_position(after(position, move));
    require(read_uci(position, uci_of(move)).move == move && read_san(position, san_of(position, move)).move == move);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  size_t end = text.find('\n');
  const FenReading reading = read_fen(text.substr(0, end));
  require(reading.good() == reading.complaint().empty());
  if (!reading.good()) return 0;
  const Position& position = reading.position;
  check_position(position);
  MoveList list;
  legal_moves(position, list);
  check_moves(position, list);
  require(result_of(position, 1, DrawRules::fide()).over() || list.size > 0);
  while (end != std::string_view::npos) {
    text.remove_prefix(end + 1);
    end = text.find('\n');
    const MoveReading move = read_move(position, text.substr(0, end));
    require(move.good() ? list.contains(move.move) : !move.why.empty() && !move.move);
  }
  return 0;
}
