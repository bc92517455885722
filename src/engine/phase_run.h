// engine/phase_run.h -- one pass over a phase: of a step, or of a validation set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/recipe.h"

namespace tandem {

struct PhaseRun {
  const Phase* phase = nullptr;
  size_t index = 0;                    // among the recipe's phases; those of validation sets follow
  int64_t step = 0;                    // steps before this one
  bool last = false;                   // of the step's phases: its combine carries the request
  int64_t request = 0;                 // the newest that this worker has seen
  bool all = false;                    // a fused step: this run stands for all phases
  const ValidationSet* set = nullptr;  // else it is training
  size_t set_index = 0;
  int64_t pass = 0;  // of the set
};

// When the phase runs for the 16th, 32nd, 64th, ... time, and every 4,096 times, its fast way is compared with the
// plain one again.
inline bool compares_again(const PhaseRun& run) {
  const int64_t number = run.step / run.phase->every;
  return number >= 16 && ((number & (number - 1)) == 0 || number % 4096 == 0);
}

}  // namespace tandem
