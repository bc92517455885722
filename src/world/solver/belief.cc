#include "world/solver/belief.h"

#include <algorithm>
#include <cmath>

namespace tandem {
namespace {

// A closed case has the habit's cause with .6, any other with .1 each: a count weighs 6 to 1.
void habit_posterior(const float* closed, double* p) {
  const double most = *std::max_element(closed, closed + kCauses);
  double sum = 0;
  for (int k = 0; k < kCauses; ++k) sum += p[k] = std::exp(std::log(6.0) * (closed[k] - most));
  for (int k = 0; k < kCauses; ++k) p[k] /= sum;
}

}  // namespace

int CausePosterior::best() const { return static_cast<int>(std::max_element(p, p + kCauses) - p); }

int CausePosterior::second() const {
  const int first = best();
  int at = first == 0 ? 1 : 0;
  for (int k = 0; k < kCauses; ++k)
    if (k != first && p[k] > p[at]) at = k;
  return at;
}

CausePosterior cause_posterior(const CaseSeen& seen, const double* extra, double clarity) {
  CausePosterior out;
  double habit[kCauses];
  habit_posterior(seen.closed[seen.feature], habit);
  double most = -1e30;
  for (int k = 0; k < kCauses; ++k) {
    double logit = clarity * kCueStrength * seen.clues.cue[k];
    for (int i = 0; i < 8; ++i) logit += clarity * kTextStrength * text_pattern(k, i) * seen.clues.text[i];
    out.p[k] = logit + (extra != nullptr ? extra[k] : 0.0);
    most = std::max(most, out.p[k]);
  }
  double sum = 0;
  for (int k = 0; k < kCauses; ++k)
    sum += out.p[k] = std::exp(out.p[k] - most) * (kHabitShare * habit[k] + (1 - kHabitShare) / kCauses);
  for (double& p : out.p) p /= sum;
  return out;
}

double sign_posterior(double share, double strength, double reading) {
  const double odds = share / (1 - share) * std::exp(strength * reading - 0.5 * strength * strength);
  return odds / (1 + odds);
}

int sample_index(const double* weights, int count, Draws& draws) {
  double sum = 0;
  for (int i = 0; i < count; ++i) sum += weights[i];
  double at = draws.uniform() * sum;
  for (int i = 0; i + 1 < count; ++i)
    if ((at -= weights[i]) < 0) return i;
  return count - 1;
}

void sample_product(const ProductSeen& seen, ProductHidden& hidden, Draws& draws) {
  for (int f = 0; f < kFeatures; ++f) {
    double weights[3];
    for (int level = 0; level < 3; ++level) {
      const double rot = rot_level(level);
      weights[level] = rot_share(level) * std::exp(seen.found[f] * std::log(rot) - rot * seen.searched[f]);
    }
    hidden.rot[f] = rot_level(sample_index(weights, 3, draws));
    const double mean = hidden.rot[f] * seen.exposure[f];
    double term = std::exp(-mean), left = draws.uniform() - term;
    int count = 0;
    while (left >= 0 && count < 15) left -= term *= mean / ++count;
    hidden.defects[f] = count;
  }
}

void sample_case(const CaseSeen& seen, const CausePosterior& posterior, CaseHidden& hidden, Draws& draws) {
  hidden.cause = sample_index(posterior.p, kCauses, draws);
  for (int f = 0; f < kFeatures; ++f) {
    double habit[kCauses];
    habit_posterior(seen.closed[f], habit);
    if (f == seen.feature) habit[hidden.cause] *= 6;
    hidden.habit[f] = sample_index(habit, kCauses, draws);
  }
}

}  // namespace tandem
