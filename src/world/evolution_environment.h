// world/evolution_environment.h -- the evolution agent: what to do with a test that went red, light-handed or verified.
//
// Behind it stands (hidden) a moved locator, a changed behaviour, a real defect, an obsolete test, or bad timing; the
// right answers are heal, rewrite, report, retire, steady. Action = 2 * answer + verified. A verified change costs a
// run of the budget, lasts, and a wrong one is taken back in time; a light change leaves the feature's tests brittle,
// and a wrong one masks what was the matter: users find it later, or the tests break again: `broken`.
#pragma once

#include "world/clues.h"

namespace tandem {

struct EvolutionEnvironment {
  struct Seen {
    ProductSeen product;
    EpisodeSeen episode;
    CaseSeen item;
    float brittle[kFeatures];  // 0 to 1
    float budget;
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
  TANDEM_HD static DayRates rates() { return {0.015f, 0.12f}; }
  static constexpr float kMostBudget = 4.0f, kBudgetADay = 0.5f, kBreakChance = 0.035f;
  TANDEM_HD static TermWeights weights() { return {{15.0f, 10.0f, 5.0f, -20.0f}, 1.0f / 15.0f}; }

  // What a right answer brings: heal, rewrite, report, retire, steady.
  TANDEM_HD static float heals(int32_t answer) { return answer == 0 ? 1.0f : answer == 3 ? 0.3f : 0.7f; }
  TANDEM_HD static float covers(int32_t answer) { return answer == 1 ? 1.0f : answer == 2 ? 0.8f : 0.2f; }
  TANDEM_HD static float optimises(int32_t answer) { return answer == 3 ? 1.6f : answer == 4 ? 1.0f : 0.1f; }

  TANDEM_HD static void next_case(State& s, auto& draws) {
    open_case(s.seen.item, s.hidden.item, draws.below(kFeatures), draws);
  }

  TANDEM_HD static void reset(State& s, auto& draws) {
    found_product(s.seen.product, s.hidden.product, rates().birth, draws);
    found_cases(s.seen.item, s.hidden.item, draws);
    s.seen.episode = {};
    for (int32_t f = 0; f < kFeatures; ++f) s.seen.brittle[f] = draws.between(0.1f, 0.6f);
    s.seen.budget = 2.0f;
    next_case(s, draws);
  }

  TANDEM_HD static StepResult step(State& s, int32_t action, auto& draws) {
    const int32_t f = s.seen.item.feature, answer = action / 2;
    const bool right = answer == s.hidden.item.cause;
    const bool verified = action % 2 == 1 && s.seen.budget >= 1.0f;
    if (verified) s.seen.budget -= 1.0f;
    s.seen.budget = at_most(s.seen.budget + kBudgetADay, kMostBudget);

    ProductSeen& product = s.seen.product;
    float& brittle = s.seen.brittle[f];
    const float lasting = verified ? 1.0f : 0.8f;
    const float healed = right ? heals(answer) * lasting : 0.0f;
    const float gain = right ? covers(answer) * lasting : 0.0f;
    const float optimised = right ? optimises(answer) * lasting : 0.0f;
    brittle = verified ? (right ? 0.5f : 0.9f) * brittle : brittle + (right ? 0.1f : 0.3f) * (1.0f - brittle);
    if (!right && !verified) {
      may_leave_defect(product, s.hidden.product, f, 0.35f, draws);
      product.coverage[f] *= 0.9f;
    }
    product.coverage[f] += 0.3f * gain * (1.0f - product.coverage[f]);
    close_case(s.seen.item, s.hidden.item);

    float broken = 0.0f;
    for (int32_t i = 0; i < kFeatures; ++i) {
      if (draws.chance(kBreakChance * s.seen.brittle[i])) broken += 0.5f;
      product.coverage[i] *= 1.0f - 0.02f * product.churn[i];
    }
    const bool done = s.seen.episode.time + 1 >= kLength;
    broken += static_cast<float>(pass_day(product, s.hidden.product, rates(), draws));
    if (done) broken += 0.7f * static_cast<float>(whole_defects(s.hidden.product));
    const StepResult result = settle(weights(), healed, gain, optimised, broken, done);
    remember(s.seen.episode, action, result);
    next_case(s, draws);
    return result;
  }

  TANDEM_HD static void observe(const Seen& s, float* out) {
    float* g = out + kGlobal;
    g[0] = 2.0f * static_cast<float>(s.episode.time) / kLength - 1.0f;
    g[1] = 0.5f * (s.budget - 2.0f);
    g[2] = s.budget >= 1.0f ? 1.0f : -1.0f;
    g[3] = at_most(0.25f * whole_risk(s.product), 3.0f);
    float brittle = 0.0f;
    for (int32_t f = 0; f < kFeatures; ++f) brittle += s.brittle[f];
    g[4] = 0.25f * brittle - 1.0f;
    for (int32_t i = 5; i < kOwn; ++i) g[i] = 0.0f;
    float column[kFeatures];
    for (int32_t f = 0; f < kFeatures; ++f) column[f] = 2.0f * s.brittle[f] - 1.0f;
    observe_product(s.product, s.episode, s.item.feature, column, out);
    observe_case(s.item, out + kOwn + kColumns);
    for (int32_t i = kOwn + kColumns + 18; i < kTable; ++i) out[i] = 0.0f;
  }
};

}  // namespace tandem
