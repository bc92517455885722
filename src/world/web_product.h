// world/web_product.h -- the web product under test: eight features, their hidden defects, and how a day passes.
//
// A feature is born with a hidden rot (how readily work on it makes defects). Churn makes defects; a defect lies hidden
// until a test finds it or users do: an escape, which is an incident. `Seen` is what the dashboards show or what
// anybody could have counted from them; `Hidden` nobody sees but an oracle. Because defects arise and leave
// independently, (exposure, found, searched) say all there is to know about them: rot given them has weight rot^found
// e^(-rot searched), and about rot * exposure defects are left.
#pragma once

#include "world/draws.h"

namespace tandem {

inline constexpr int32_t kFeatures = 8, kObservation = 128, kActions = 10, kTerms = 4, kCauses = 5;

struct ProductSeen {
  float complexity[kFeatures];  // 0 to 1, fixed
  float usage[kFeatures];       // traffic, 0.4 to 1.6, fixed
  float churn[kFeatures];       // 0 to 1
  float coverage[kFeatures];    // of the test suite, 0 to 1
  float incidents[kFeatures];   // recent ones, fading
  float exposure[kFeatures];    // defects that an average feature would still hide
  float found[kFeatures];       // defects found so far, by tests or users
  float searched[kFeatures];    // how many an average feature would have shown by now
};

struct ProductHidden {
  float rot[kFeatures];  // 0.4, 1 or 2
  int32_t defects[kFeatures];
};

struct DayRates {
  float birth;   // of defects, a day at full churn
  float escape;  // of one defect, a day at average traffic without coverage
};

TANDEM_HD float rot_level(int32_t level) { return level == 0 ? 0.4f : level == 1 ? 1.0f : 2.0f; }
TANDEM_HD float rot_share(int32_t level) { return level == 0 ? 0.35f : level == 1 ? 0.4f : 0.25f; }

// The dashboard's estimate of the defects that a feature hides: a Gamma(2, 2) prior on rot.
TANDEM_HD float risk_of(const ProductSeen& seen, int32_t f) {
  return seen.exposure[f] * (2.0f + seen.found[f]) / (2.0f + seen.searched[f]);
}
TANDEM_HD float whole_risk(const ProductSeen& seen) {
  float sum = 0.0f;
  for (int32_t f = 0; f < kFeatures; ++f) sum += risk_of(seen, f);
  return sum;
}
TANDEM_HD int32_t whole_defects(const ProductHidden& hidden) {
  int32_t sum = 0;
  for (int32_t f = 0; f < kFeatures; ++f) sum += hidden.defects[f];
  return sum;
}

// Work on f leaves a defect behind with probability p * rot.
TANDEM_HD void may_leave_defect(ProductSeen& seen, ProductHidden& hidden, int32_t f, float p, auto& draws) {
  seen.exposure[f] += p;
  if (draws.chance(p * hidden.rot[f]) && hidden.defects[f] < 15) ++hidden.defects[f];
}

// Each defect of f shows itself with probability p; at most one does. Returns whether one did.
TANDEM_HD bool may_show_defect(ProductSeen& seen, ProductHidden& hidden, int32_t f, float p, float uniform) {
  const bool shown = uniform < at_most(p * static_cast<float>(hidden.defects[f]), 0.95f);
  seen.searched[f] += seen.exposure[f] * p;
  seen.exposure[f] *= 1.0f - p;
  if (shown) {
    --hidden.defects[f];
    seen.found[f] += 1.0f;
  }
  return shown;
}

TANDEM_HD void found_product(ProductSeen& seen, ProductHidden& hidden, float birth, auto& draws) {
  for (int32_t f = 0; f < kFeatures; ++f) {
    seen.complexity[f] = draws.uniform();
    seen.usage[f] = draws.between(0.4f, 1.6f);
    seen.churn[f] = draws.between(0.05f, 0.6f);
    seen.coverage[f] = draws.between(0.2f, 0.7f);
    seen.incidents[f] = 0.0f;
    seen.exposure[f] = 0.0f;
    seen.found[f] = 0.0f;
    seen.searched[f] = 0.0f;
    const float level = draws.uniform();
    hidden.rot[f] = rot_level(level < rot_share(0) ? 0 : level < rot_share(0) + rot_share(1) ? 1 : 2);
    hidden.defects[f] = 0;
    for (int32_t old = 0; old < 2; ++old)
      may_leave_defect(seen, hidden, f, at_most(3.0f * birth * (0.5f + seen.complexity[f]), 0.45f), draws);
  }
}

TANDEM_HD float escape_chance(const ProductSeen& seen, int32_t f, float escape) {
  return escape * seen.usage[f] * (1.0f - 0.7f * seen.coverage[f]);
}

// Releases, churn and users for one day. Returns how many defects escaped; bit f of *where is set if f had one.
TANDEM_HD int32_t pass_day(ProductSeen& seen, ProductHidden& hidden, const DayRates& rates, auto& draws,
                           uint32_t* where = nullptr) {
  int32_t escapes = 0;
  uint32_t bits = 0;
  for (int32_t f = 0; f < kFeatures; ++f) {
    const bool escaped = may_show_defect(seen, hidden, f, escape_chance(seen, f, rates.escape), draws.uniform());
    escapes += escaped ? 1 : 0;
    bits |= escaped ? 1u << f : 0u;
    seen.incidents[f] = 0.8f * seen.incidents[f] + (escaped ? 1.0f : 0.0f);
    const float p = rates.birth * seen.churn[f] * (0.5f + seen.complexity[f]);
    const uint32_t word = draws.word();
    const float birth = static_cast<float>(word >> 16) * 0x1p-16f,
                burst = static_cast<float>(word & 0xFFFFu) * 0x1p-16f;
    seen.exposure[f] += p;
    if (birth < p * hidden.rot[f] && hidden.defects[f] < 15) ++hidden.defects[f];
    seen.churn[f] = burst < 0.05f ? 1.0f : 0.85f * seen.churn[f] + 0.03f;
  }
  if (where != nullptr) *where = bits;
  return escapes;
}

struct StepResult {
  float reward;
  float terms[kTerms];  // amounts, before their weights
  int32_t done;
};

struct TermWeights {
  float weight[kTerms];
  float scale;  // brings a step's reward to about 1
};

TANDEM_HD StepResult settle(const TermWeights& w, float a, float b, float c, float d, bool done) {
  StepResult result{0.0f, {a, b, c, d}, done ? 1 : 0};
  for (int32_t i = 0; i < kTerms; ++i) result.reward += w.weight[i] * result.terms[i];
  result.reward *= w.scale;
  return result;
}

// What all six environments share beside the product: the time of the episode and its last step.
struct EpisodeSeen {
  int32_t time, last_action;
  float last_terms[kTerms];
};

TANDEM_HD void remember(EpisodeSeen& episode, int32_t action, const StepResult& result) {
  episode.last_action = action;
  for (int32_t i = 0; i < kTerms; ++i) episode.last_terms[i] = result.terms[i];
  ++episode.time;
}

// Offsets in an observation; an environment fills [kGlobal, kOwn), [kOwn + 8, kTable) and the table's last column.
inline constexpr int32_t kGlobal = 0, kOwn = 16, kTable = 48, kLast = 112, kColumns = 8;

// Writes the product's table, the row of `feature` again at kOwn, and the last step; `extra` is the table's last
// column.
TANDEM_HD void observe_product(const ProductSeen& seen, const EpisodeSeen& episode, int32_t feature, const float* extra,
                               float* out) {
  for (int32_t f = 0; f < kFeatures; ++f) {
    float* row = out + kTable + kColumns * f;
    row[0] = 2.0f * seen.complexity[f] - 1.0f;
    row[1] = 2.0f * seen.churn[f] - 0.6f;
    row[2] = 1.6f * (seen.usage[f] - 1.0f);
    row[3] = 2.0f * seen.coverage[f] - 1.0f;
    row[4] = at_most(seen.incidents[f], 2.0f);
    row[5] = at_most(risk_of(seen, f), 4.0f) - 0.5f;
    row[6] = at_most(0.25f * seen.found[f], 2.0f);
    row[7] = extra[f];
  }
  for (int32_t i = 0; i < kColumns; ++i) out[kOwn + i] = out[kTable + kColumns * feature + i];
  for (int32_t i = 0; i < kActions; ++i) out[kLast + i] = episode.time > 0 && episode.last_action == i ? 1.0f : 0.0f;
  for (int32_t i = 0; i < kTerms; ++i) out[kLast + kActions + i] = clamped(0.5f * episode.last_terms[i], -2.0f, 2.0f);
  out[kLast + 14] = 0.25f * (whole_risk(seen) - 2.0f);
  out[kLast + 15] = 0.0f;
}

}  // namespace tandem
