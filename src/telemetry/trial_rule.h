// telemetry/trial_rule.h -- which steps of a short training measure it: when it may end, and which are counted.
#pragma once

#include <cstdint>

namespace tandem {

struct TrialRule {
  int64_t warm_up = 1;    // first steps: eager, captured, compared
  int64_t least = 2;      // steps behind them, however long each takes
  bool compares = false;  // the 17th, 33rd, 65th, ... step runs twice, to be compared
};

// On a GPU a phase runs eagerly twice, its graph is compared twice, then that of the whole step is captured.
inline TrialRule trial_rule(bool on_gpu) {
  return on_gpu ? TrialRule{.warm_up = 6, .least = 8, .compares = true} : TrialRule{};
}

}  // namespace tandem
