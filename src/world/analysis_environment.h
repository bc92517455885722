// world/analysis_environment.h -- the analysis agent: which cause stands behind a failure, and whether to look deeper
// first.
//
// Failures wait in a line that never ends, so time is the price of certainty. Action = 2 * cause + conclude: a probe of
// that cause gives one more noisy answer and takes a turn; a conclusion closes the case and takes three. Causes:
// product defect, flaky test, environment, data, configuration. One seen before on the feature is a pattern. A right
// conclusion is accepted as far as the developers trust the agent; a wrong one costs trust, and where the cause was a
// product defect, the defect stays and users find it later: `wrong` again.
#pragma once

#include "world/clues.h"

namespace tandem {

struct AnalysisEnvironment {
  struct Seen {
    ProductSeen product;
    EpisodeSeen episode;
    CaseSeen item;
    float answers[kCauses], probes[kCauses];  // sum of the answers, and how many
    float trust;
  };
  struct Hidden {
    ProductHidden product;
    CaseHidden item;
  };
  struct State {
    Seen seen;
    Hidden hidden;
  };

  static constexpr int32_t kLength = 64;
  TANDEM_HD static DayRates rates() { return {0.015f, 0.12f}; }
  static constexpr float kAnswerNoise = 0.8f, kClarity = 0.6f;
  static constexpr int32_t kReport = 3;  // turns that a conclusion takes
  TANDEM_HD static TermWeights weights() { return {{20.0f, 10.0f, 5.0f, -15.0f}, 0.05f}; }

  TANDEM_HD static void next_case(State& s, auto& draws) {
    open_case(s.seen.item, s.hidden.item, draws.below(kFeatures), draws, kClarity);
    for (int32_t k = 0; k < kCauses; ++k) {
      s.seen.answers[k] = 0.0f;
      s.seen.probes[k] = 0.0f;
    }
  }

  TANDEM_HD static void reset(State& s, auto& draws) {
    found_product(s.seen.product, s.hidden.product, rates().birth, draws);
    found_cases(s.seen.item, s.hidden.item, draws);
    s.seen.episode = {};
    s.seen.trust = draws.between(0.4f, 0.8f);
    next_case(s, draws);
  }

  TANDEM_HD static StepResult step(State& s, int32_t action, auto& draws) {
    const int32_t f = s.seen.item.feature, cause = action / 2;
    const bool concluded = action % 2 == 1, right = cause == s.hidden.item.cause;
    float rca = 0.0f, pattern = 0.0f, accepted = 0.0f, wrong = 0.0f;
    if (concluded) {
      const bool listened = draws.chance(s.seen.trust);
      rca = right ? 1.0f : 0.0f;
      pattern = right && s.seen.item.closed[f][cause] >= 1.0f ? 1.0f : 0.0f;
      accepted = right && listened ? 1.0f : 0.0f;
      wrong = right ? 0.0f : 1.0f;
      if (!right && s.hidden.item.cause == 0) may_leave_defect(s.seen.product, s.hidden.product, f, 0.45f, draws);
      s.seen.trust =
          clamped(s.seen.trust + (right ? 0.08f * (1.0f - s.seen.trust) : -0.25f * s.seen.trust), 0.1f, 0.98f);
      close_case(s.seen.item, s.hidden.item);
    } else {
      s.seen.answers[cause] += (right ? 1.0f : -1.0f) + kAnswerNoise * draws.normal();
      s.seen.probes[cause] += 1.0f;
    }
    const int32_t turns = concluded ? kReport : 1;
    const bool done = s.seen.episode.time + turns >= kLength;
    wrong += static_cast<float>(pass_day(s.seen.product, s.hidden.product, rates(), draws));
    const StepResult result = settle(weights(), rca, pattern, accepted, wrong, done);
    remember(s.seen.episode, action, result);
    s.seen.episode.time += turns - 1;
    if (concluded) next_case(s, draws);
    return result;
  }

  TANDEM_HD static void observe(const Seen& s, float* out) {
    float* g = out + kGlobal;
    g[0] = 2.0f * static_cast<float>(s.episode.time) / kLength - 1.0f;
    g[1] = 2.0f * s.trust - 1.2f;
    g[2] = at_most(0.25f * whole_risk(s.product), 3.0f);
    float probes = 0.0f;
    for (int32_t k = 0; k < kCauses; ++k) probes += s.probes[k];
    g[3] = 0.5f * at_most(probes, 6.0f) - 0.5f;
    for (int32_t k = 0; k < kCauses; ++k) {
      g[4 + k] = 0.6f * clamped(s.answers[k], -5.0f, 5.0f);
      g[9 + k] = 0.5f * at_most(s.probes[k], 4.0f);
    }
    for (int32_t i = 14; i < kOwn; ++i) g[i] = 0.0f;
    float closed[kFeatures];
    for (int32_t f = 0; f < kFeatures; ++f) {
      closed[f] = 0.0f;
      for (int32_t k = 0; k < kCauses; ++k) closed[f] += 0.2f * s.item.closed[f][k];
    }
    observe_product(s.product, s.episode, s.item.feature, closed, out);
    observe_case(s.item, out + kOwn + kColumns);
    float* own = out + kOwn + kColumns + 18;
    for (int32_t k = 0; k < kCauses; ++k) own[k] = s.item.closed[s.item.feature][k] >= 1.0f ? 1.0f : 0.0f;
    own[5] = 0.0f;
  }
};

}  // namespace tandem
