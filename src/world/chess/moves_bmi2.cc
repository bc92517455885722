// world/chess/moves_bmi2.cc -- the variant of move_functions.h for x86-64 since 2013 whose PEXT is slow: the same
// computation in fewer instructions. Compiled with -mpopcnt -mbmi -mbmi2.
#include "world/chess/move_functions_of.h"

namespace tandem::chess {

#if defined(__POPCNT__) && defined(__BMI__) && defined(__BMI2__)
namespace {

struct Bmi2Sliders : ComputedSliders {};

}  // namespace

const MoveFunctions* bmi2_moves() {
  static constexpr MoveFunctions functions = MoveFunctionsOf<Bmi2Sliders>::named("bmi2");
  __builtin_cpu_init();
  const bool here = __builtin_cpu_supports("popcnt") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  return here ? &functions : nullptr;
}
#else
const MoveFunctions* bmi2_moves() { return nullptr; }
#endif

}  // namespace tandem::chess
