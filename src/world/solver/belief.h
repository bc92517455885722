// world/solver/belief.h -- the posterior of the hidden state given the observations so far: exact where the
// environments are conjugate.
//
// Used by the solver only; it knows the model and sees `Seen`, never `Hidden`.
#pragma once

#include "world/clues.h"

namespace tandem {

// P(cause) of the open case from cues, text and closed cases; `extra` adds log-odds by cause (may be null).
struct CausePosterior {
  double p[kCauses];
  int best() const;
  int second() const;
};
CausePosterior cause_posterior(const CaseSeen& seen, const double* extra = nullptr, double clarity = 1.0);

// P(bit) of a sign seen as strength * bit + normal noise.
double sign_posterior(double share, double strength, double reading);

// Draws a hidden state from the posterior.
void sample_product(const ProductSeen& seen, ProductHidden& hidden, Draws& draws);
void sample_case(const CaseSeen& seen, const CausePosterior& posterior, CaseHidden& hidden, Draws& draws);
int sample_index(const double* weights, int count, Draws& draws);

}  // namespace tandem
