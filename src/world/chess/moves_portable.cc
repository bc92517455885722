// world/chess/moves_portable.cc -- the variant of move_functions.h for any CPU.
#include "world/chess/move_functions_of.h"

namespace tandem::chess {
namespace {

struct PortableSliders : ComputedSliders {};

}  // namespace

const MoveFunctions* portable_moves() {
  static constexpr MoveFunctions functions = MoveFunctionsOf<PortableSliders>::named("portable");
  return &functions;
}

}  // namespace tandem::chess
