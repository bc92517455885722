// world/chess/move_functions.h -- the loops of move generation, compiled for several kinds of CPU from one source. For
// the .cc files of this folder, tests and benchmarks; others call moves.h and perft.h, which take the fastest.
//
// Every variant gives the same lists in the same order. The headers that they are compiled from include nothing of the
// standard library, since code of a newer CPU must not be what other files are linked with.
#pragma once

#include "world/chess/move.h"
#include "world/chess/position.h"

namespace tandem::chess {

struct MoveFunctions {
  const char* name;
  void (*legal_moves)(const Position&, MoveList&);
  int (*count_legal_moves)(const Position&);
  bool (*in_check)(const Position&);
  uint64_t (*perft)(const Position&, int depth);
};

// Each is nullptr where this build or this CPU has it not; the first is always there.
const MoveFunctions* portable_moves();  // any CPU
const MoveFunctions* bmi2_moves();      // x86-64 with POPCNT, BMI1 and BMI2
const MoveFunctions* pext_moves();      // the same with a PEXT that is no microcode: a table look-up a slider

const MoveFunctions& fastest_moves();

}  // namespace tandem::chess
