// world/generation_environment.h -- the generation agent: which type of test for a scenario, from the template or
// bespoke.
//
// The layer where the code goes wrong (hidden, five of them) decides which type of test bites. A bespoke test is clumsy
// to keep but grows the fixtures of its type; a template test is as good as the fixtures, and smells where they are
// thin. Smells add up to a debt that spoils every later test. Action = 2 * type + template. A test that bites finds
// defects; one that does not lets them escape, and an escape takes back quality that was credited.
#pragma once

#include "world/clues.h"

namespace tandem {

struct GenerationEnvironment {
  struct Seen {
    ProductSeen product;
    EpisodeSeen episode;
    CaseSeen item;
    float fixtures[kCauses];  // by type, 0 to 1
    float debt;               // 0 to 1
  };
  struct Hidden {
    ProductHidden product;
    CaseHidden item;
  };
  struct State {
    Seen seen;
    Hidden hidden;
  };

  static constexpr int32_t kLength = 40;
  TANDEM_HD static DayRates rates() { return {0.06f, 0.12f}; }
  TANDEM_HD static TermWeights weights() { return {{10.0f, 5.0f, 3.0f, -2.0f}, 0.1f}; }

  TANDEM_HD static float upkeep(int32_t type) {  // unit, contract, integration, visual, end-to-end
    return type == 0 ? 0.9f : type == 1 ? 0.8f : type == 2 ? 0.7f : type == 3 ? 0.55f : 0.45f;
  }

  TANDEM_HD static void next_case(State& s, auto& draws) {
    open_case(s.seen.item, s.hidden.item, draws.below(kFeatures), draws);
  }

  TANDEM_HD static void reset(State& s, auto& draws) {
    found_product(s.seen.product, s.hidden.product, rates().birth, draws);
    found_cases(s.seen.item, s.hidden.item, draws);
    s.seen.episode = {};
    for (int32_t t = 0; t < kCauses; ++t) s.seen.fixtures[t] = draws.between(0.0f, 0.35f);
    s.seen.debt = draws.between(0.1f, 0.4f);
    next_case(s, draws);
  }

  TANDEM_HD static StepResult step(State& s, int32_t action, auto& draws) {
    const int32_t f = s.seen.item.feature, type = action / 2;
    const bool from_template = action % 2 == 1;
    const float fit = type == s.hidden.item.cause ? 1.0f : 0.1f;
    float& fixtures = s.seen.fixtures[type];

    const float craft = from_template ? 0.25f + 0.75f * fixtures : 0.6f;
    const float bite = fit * craft * (1.0f - 0.5f * s.seen.debt);
    const float maintainability = upkeep(type) * (from_template ? 0.4f + 0.6f * fixtures : 0.5f) * (1.0f - s.seen.debt);
    const float reuse = from_template ? fixtures : 0.0f;
    const float smells = (from_template ? 2.0f * (1.0f - fixtures) : 0.5f) * draws.between(0.5f, 1.5f);

    if (!from_template) fixtures += 0.3f * (1.0f - fixtures);
    s.seen.debt = clamped(0.93f * s.seen.debt + 0.06f * smells, 0.0f, 1.0f);
    may_show_defect(s.seen.product, s.hidden.product, f, 0.7f * bite, draws.uniform());
    s.seen.product.coverage[f] += 0.3f * bite * (1.0f - s.seen.product.coverage[f]);
    close_case(s.seen.item, s.hidden.item);

    const bool done = s.seen.episode.time + 1 >= kLength;
    const float escapes = static_cast<float>(pass_day(s.seen.product, s.hidden.product, rates(), draws));
    const float quality = bite - 0.5f * escapes;
    for (int32_t i = 0; i < kFeatures; ++i) s.seen.product.coverage[i] *= 1.0f - 0.04f * s.seen.product.churn[i];
    const StepResult result = settle(weights(), quality, maintainability, reuse, smells, done);
    remember(s.seen.episode, action, result);
    next_case(s, draws);
    return result;
  }

  TANDEM_HD static void observe(const Seen& s, float* out) {
    float* g = out + kGlobal;
    g[0] = 2.0f * static_cast<float>(s.episode.time) / kLength - 1.0f;
    g[1] = 2.0f * s.debt - 0.8f;
    for (int32_t t = 0; t < kCauses; ++t) g[2 + t] = 2.0f * s.fixtures[t] - 0.8f;
    g[7] = at_most(0.25f * whole_risk(s.product), 3.0f);
    for (int32_t i = 8; i < kOwn; ++i) g[i] = 0.0f;
    float closed[kFeatures];
    for (int32_t f = 0; f < kFeatures; ++f) {
      closed[f] = 0.0f;
      for (int32_t k = 0; k < kCauses; ++k) closed[f] += 0.2f * s.item.closed[f][k];
    }
    observe_product(s.product, s.episode, s.item.feature, closed, out);
    observe_case(s.item, out + kOwn + kColumns);
    for (int32_t i = kOwn + kColumns + 18; i < kTable; ++i) out[i] = 0.0f;
  }
};

}  // namespace tandem
