// world/chess/move_functions_of.h -- move_functions.h for one way to compute sliding attacks. `Sliders` is a type of
// the including file alone: what two files instantiate for one type the linker would take from either.
#pragma once

#include "world/chess/move_functions.h"
#include "world/chess/move_generator.h"

namespace tandem::chess {

template <class Sliders>
struct MoveFunctionsOf {
  static void legal_moves(const Position& position, MoveList& list) {
    list.size = 0;
    ListSink sink{list};
    generate_legal_moves<Sliders>(position, sink);
  }

  static int count_legal_moves(const Position& position) {
    CountSink sink;
    generate_legal_moves<Sliders>(position, sink);
    return sink.moves;
  }

  static bool in_check(const Position& position) { return king_is_attacked<Sliders>(position); }

  // depth > 0. The moves of the last ply are counted as sets, neither listed nor made.
  template <Side kUs>
  static uint64_t perft_of(const Position& position, int depth) {
    if (depth == 1) {
      CountSink sink;
      generate_moves<kUs, Sliders>(position, sink);
      return static_cast<uint64_t>(sink.moves);
    }
    MoveList list;
    ListSink sink{list};
    generate_moves<kUs, Sliders>(position, sink);
    uint64_t nodes = 0;
    for (const Move move : list) {
      Position next = position;
      make_move_of<kUs, Sliders, false>(next, move);
      nodes += perft_of<other(kUs)>(next, depth - 1);
    }
    return nodes;
  }
  static uint64_t perft(const Position& position, int depth) {
    if (depth <= 0) return 1;
    return position.side_to_move == Side::kWhite ? perft_of<Side::kWhite>(position, depth)
                                                 : perft_of<Side::kBlack>(position, depth);
  }

  static constexpr MoveFunctions named(const char* name) {
    return {name, legal_moves, count_legal_moves, in_check, perft};
  }
};

}  // namespace tandem::chess
