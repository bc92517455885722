// world/observation_environment.h -- the observation agent: how high the alert threshold, how closely to sample.
//
// A defect that escapes makes its service sick (hidden). Sick services score higher, more so each window; scores are as
// noisy as the traffic (hidden regime, noisy gauge). Action = 2 * threshold + intense: the next window's scores above
// the threshold raise alerts; intense sampling cuts the noise and costs budget. False alerts cost trust, and people act
// on an alert only as far as they trust it. A sickness that lasts is found by the users: `missed`.
#pragma once

#include "world/web_product.h"

namespace tandem {

struct ObservationEnvironment {
  struct Seen {
    ProductSeen product;
    EpisodeSeen episode;
    float score[kFeatures], score_mean[kFeatures];  // of the last window, and running mean
    float suspicion[kFeatures];                     // the monitor's log-odds that a service is sick
    float trust, budget;
    float gauge, gauge_mean;  // noisy view of the noise
    float ignored;            // true alerts that nobody acted on, lately
  };
  struct Hidden {
    ProductHidden product;
    int32_t sick[kFeatures];  // windows since it fell sick, 0: healthy
    int32_t regime;           // of noise: 0, 1, 2
  };
  struct State {
    Seen seen;
    Hidden hidden;
  };

  static constexpr int32_t kLength = 48, kLongest = 4;
  TANDEM_HD static DayRates rates() { return {0.2f, 0.0f}; }  // what escapes here shows as sickness first
  static constexpr float kEscape = 0.2f;
  static constexpr float kMostBudget = 5.0f, kBudgetAWindow = 0.4f, kKeepRegime = 0.92f, kGaugeNoise = 0.25f;
  TANDEM_HD static TermWeights weights() { return {{15.0f, 10.0f, -5.0f, -15.0f}, 1.0f / 16.0f}; }

  TANDEM_HD static float threshold(int32_t level) {
    return level == 0 ? 0.3f : level == 1 ? 1.2f : level == 2 ? 2.0f : level == 3 ? 3.0f : 5.0f;
  }
  TANDEM_HD static float noise(int32_t regime) { return regime == 0 ? 0.4f : regime == 1 ? 0.8f : 1.5f; }
  TANDEM_HD static float symptom(int32_t windows) {
    return windows == 0 ? 0.0f : 1.1f + 0.6f * static_cast<float>(windows);
  }

  // Log-odds of a symptom of 2 against none, in noise `sigma` as the gauge shows it; old evidence fades.
  TANDEM_HD static float suspected(float before, float score, float sigma) {
    const float square = at_least(sigma * sigma, 0.04f);
    return clamped(0.8f * before - 0.5f + clamped((2.0f * score - 2.0f) / square, -4.0f, 4.0f), -5.0f, 5.0f);
  }

  TANDEM_HD static void look_at_gauge(State& s, auto& draws) {
    s.seen.gauge = noise(s.hidden.regime) * (1.0f + kGaugeNoise * draws.normal());
    s.seen.gauge_mean = 0.6f * s.seen.gauge_mean + 0.4f * s.seen.gauge;
  }

  TANDEM_HD static void reset(State& s, auto& draws) {
    found_product(s.seen.product, s.hidden.product, 0.5f * rates().birth, draws);
    s.seen.episode = {};
    for (int32_t f = 0; f < kFeatures; ++f) {
      s.seen.score[f] = 0.0f;
      s.seen.score_mean[f] = 0.0f;
      s.seen.suspicion[f] = -2.0f;
      s.hidden.sick[f] = 0;
    }
    s.seen.trust = draws.between(0.5f, 0.9f);
    s.seen.budget = 2.0f;
    s.seen.ignored = 0.0f;
    s.hidden.regime = draws.below(3);
    s.seen.gauge_mean = 1.0f;
    look_at_gauge(s, draws);
  }

  TANDEM_HD static StepResult step(State& s, int32_t action, auto& draws) {
    const float line = threshold(action / 2);
    const bool intense = action % 2 == 1 && s.seen.budget >= 1.0f;
    if (intense) s.seen.budget -= 1.0f;
    s.seen.budget = at_most(s.seen.budget + kBudgetAWindow, kMostBudget);

    ProductSeen& product = s.seen.product;
    pass_day(product, s.hidden.product, rates(), draws);
    const float sigma = noise(s.hidden.regime) * (intense ? 0.5f : 1.0f);
    const float trust = s.seen.trust;
    float hits = 0.0f, falses = 0.0f, silent = 0.0f, missed = 0.0f;
    s.seen.ignored *= 0.7f;
    for (int32_t f = 0; f < kFeatures; ++f) {
      int32_t& sick = s.hidden.sick[f];
      const float p = escape_chance(product, f, kEscape);
      const bool escapes = draws.chance(at_most(p * static_cast<float>(s.hidden.product.defects[f]), 0.95f));
      product.searched[f] += product.exposure[f] * p;
      product.exposure[f] *= 1.0f - p;
      if (sick > 0) {
        ++sick;
      } else if (escapes) {
        sick = 1;
        --s.hidden.product.defects[f];
      }
      s.seen.score[f] = symptom(sick) + sigma * draws.normal();
      const bool acted = draws.chance(trust);
      bool known = false;  // healed, or reported by users: everybody sees it
      if (s.seen.score[f] > line) {
        hits += sick > 0 ? 1.0f : 0.0f;
        falses += sick > 0 ? 0.0f : 1.0f;
        if (sick > 0 && acted) {
          known = true;
        } else if (sick > 0) {
          s.seen.ignored += 1.0f;
        }
      } else {
        silent += sick > 0 ? 1.0f : 0.0f;
      }
      if (!known && sick >= kLongest) {
        missed += 1.0f;
        known = true;
      }
      s.seen.score_mean[f] = 0.6f * s.seen.score_mean[f] + 0.4f * s.seen.score[f];
      s.seen.suspicion[f] =
          suspected(s.seen.suspicion[f], s.seen.score[f], s.seen.gauge_mean * (intense ? 0.5f : 1.0f));
      if (known) {
        sick = 0;
        s.seen.score[f] = 0.0f;
        s.seen.score_mean[f] = 0.0f;
        s.seen.suspicion[f] = -2.5f;
        product.found[f] += 1.0f;
        product.incidents[f] += 1.0f;
      }
    }
    s.seen.trust = clamped(trust + 0.05f * hits - 0.06f * falses + 0.01f * (0.7f - trust), 0.1f, 0.98f);

    const bool done = s.seen.episode.time + 1 >= kLength;
    const float judged = hits + falses + silent, alerts = hits + falses;
    const StepResult result = settle(weights(), judged > 0.0f ? hits / judged : 0.0f,
                                     alerts > 0.0f ? hits / alerts : 0.0f, falses, missed, done);
    remember(s.seen.episode, action, result);
    if (!draws.chance(kKeepRegime)) s.hidden.regime = draws.below(3);
    look_at_gauge(s, draws);
    return result;
  }

  TANDEM_HD static void observe(const Seen& s, float* out) {
    float* g = out + kGlobal;
    g[0] = 2.0f * static_cast<float>(s.episode.time) / kLength - 1.0f;
    g[1] = 2.0f * s.trust - 1.2f;
    g[2] = 0.5f * (s.budget - 2.0f);
    g[3] = s.budget >= 1.0f ? 1.0f : -1.0f;
    g[4] = at_most(s.gauge, 3.0f) - 1.0f;
    g[5] = at_most(s.gauge_mean, 3.0f) - 1.0f;
    g[6] = at_most(s.ignored, 3.0f) - 0.3f;
    g[7] = at_most(0.25f * whole_risk(s.product), 3.0f) - 1.0f;
    float highest = 0.0f, second = 0.0f;
    int32_t suspect = 0;
    float doubtful = 0.0f, sure = 0.0f;  // services that may well be sick, and that almost surely are
    for (int32_t f = 0; f < kFeatures; ++f) {
      const float mean = s.score_mean[f];
      doubtful += s.suspicion[f] > 0.0f ? 1.0f : 0.0f;
      sure += s.suspicion[f] > 2.0f ? 1.0f : 0.0f;
      if (mean > s.score_mean[suspect]) suspect = f;
      if (mean > highest) {
        second = highest;
        highest = mean;
      } else if (mean > second) {
        second = mean;
      }
    }
    g[8] = at_most(highest, 4.0f) - 0.8f;
    g[9] = at_most(second, 4.0f) - 0.5f;
    g[10] = at_most(0.5f * doubtful, 2.0f) - 0.3f;
    g[11] = at_most(0.5f * sure, 2.0f) - 0.2f;
    for (int32_t i = 12; i < kOwn; ++i) g[i] = 0.0f;
    float means[kFeatures];
    for (int32_t f = 0; f < kFeatures; ++f) means[f] = 0.4f * s.suspicion[f];
    observe_product(s.product, s.episode, suspect, means, out);
    float* own = out + kOwn + kColumns;
    for (int32_t f = 0; f < kFeatures; ++f) {
      own[f] = 0.5f * clamped(s.score[f], -3.0f, 6.0f);
      own[8 + f] = escape_chance(s.product, f, 5.0f) * risk_of(s.product, f) - 0.5f;
    }
    for (int32_t i = kOwn + kColumns + 16; i < kTable; ++i) out[i] = 0.0f;
  }
};

}  // namespace tandem
