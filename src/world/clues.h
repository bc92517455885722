// world/clues.h -- a case with a hidden cause (one of five) and what can be read about it.
//
// Each feature has a hidden habit: half of its cases have the habit's cause, the rest any. A case shows five weak cues,
// one per cause, and a text of eight numbers in which each cause has its pattern. Causes of closed cases are known and
// counted.
#pragma once

#include "world/web_product.h"

namespace tandem {

struct Clues {
  float cue[kCauses];
  float text[8];
};

struct CaseSeen {
  int32_t feature;
  Clues clues;
  float closed[kFeatures][kCauses];  // causes of closed cases
};

struct CaseHidden {
  int32_t cause;
  int32_t habit[kFeatures];
};

inline constexpr float kCueStrength = 1.2f, kTextStrength = 0.55f, kHabitShare = 0.5f;

// Rows 1 to 5 of the Hadamard matrix of order 8: +1 or -1.
TANDEM_HD float text_pattern(int32_t cause, int32_t place) {
  const int32_t bits = (cause + 1) & place;
  return ((bits ^ (bits >> 1) ^ (bits >> 2)) & 1) != 0 ? -1.0f : 1.0f;
}

// `clarity` scales the strength of cues and text.
TANDEM_HD void open_case(CaseSeen& seen, CaseHidden& hidden, int32_t feature, auto& draws, float clarity = 1.0f) {
  seen.feature = feature;
  const float u = draws.uniform();
  const int32_t any = draws.below(kCauses);
  hidden.cause = u < kHabitShare ? hidden.habit[feature] : any;
  for (int32_t k = 0; k < kCauses; ++k)
    seen.clues.cue[k] = (k == hidden.cause ? clarity * kCueStrength : 0.0f) + draws.normal();
  for (int32_t i = 0; i < 8; ++i)
    seen.clues.text[i] = clarity * kTextStrength * text_pattern(hidden.cause, i) + draws.normal();
}

TANDEM_HD void found_cases(CaseSeen& seen, CaseHidden& hidden, auto& draws) {
  for (int32_t f = 0; f < kFeatures; ++f) {
    hidden.habit[f] = draws.below(kCauses);
    for (int32_t k = 0; k < kCauses; ++k) seen.closed[f][k] = 0.0f;
  }
}

TANDEM_HD void close_case(CaseSeen& seen, const CaseHidden& hidden) { seen.closed[seen.feature][hidden.cause] += 1.0f; }

// 18 numbers: cues, text, closed cases of the same feature.
TANDEM_HD void observe_case(const CaseSeen& seen, float* out) {
  for (int32_t k = 0; k < kCauses; ++k) out[k] = 0.8f * (seen.clues.cue[k] - 0.25f);
  for (int32_t i = 0; i < 8; ++i) out[5 + i] = 0.8f * seen.clues.text[i];
  for (int32_t k = 0; k < kCauses; ++k) out[13 + k] = 0.5f * at_most(seen.closed[seen.feature][k], 4.0f);
}

TANDEM_HD int32_t loudest_cue(const Clues& clues) {
  int32_t best = 0;
  for (int32_t k = 1; k < kCauses; ++k)
    if (clues.cue[k] > clues.cue[best]) best = k;
  return best;
}

}  // namespace tandem
