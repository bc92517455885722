// world/execution_environment.h -- the execution agent: which queue the runners serve next, and how many at a time.
//
// Five queues (smoke, regression, end-to-end, performance, quarantine) fill with the churn of the product. Action = 2 *
// queue + wide: three runners or six. The shared infrastructure is calm, busy or in a storm (hidden, seen through a
// noisy gauge); wide runs heat it, and in heat or storm jobs fail and go back. Jobs of regression and end-to-end keep
// coverage up; where they wait too long defects escape and come back as failures, and a full queue drops its jobs as
// failed.
#pragma once

#include "world/web_product.h"

namespace tandem {

struct ExecutionEnvironment {
  static constexpr int32_t kQueues = 5, kLength = 48;
  struct Seen {
    ProductSeen product;
    EpisodeSeen episode;
    float waiting[kQueues];   // jobs
    float age[kQueues];       // steps since the queue was served last
    float heat;               // 0 to 1
    float gauge, gauge_mean;  // noisy view of the infrastructure, and its running mean
  };
  struct Hidden {
    ProductHidden product;
    int32_t weather;  // 0 calm, 1 busy, 2 storm
  };
  struct State {
    Seen seen;
    Hidden hidden;
  };

  TANDEM_HD static DayRates rates() { return {0.045f, 0.14f}; }
  static constexpr float kRoom = 16.0f, kGaugeNoise = 0.6f, kKeepWeather = 0.88f;
  TANDEM_HD static TermWeights weights() { return {{10.0f, 5.0f, 3.0f, -5.0f}, 0.1f}; }

  TANDEM_HD static float priority(int32_t q) {
    return q == 0 ? 1.0f : q == 1 ? 0.7f : q == 2 ? 0.5f : q == 3 ? 0.35f : 0.2f;
  }
  TANDEM_HD static float arrivals(int32_t q) {  // mean jobs a step at average churn
    return q == 0 ? 0.9f : q == 1 ? 1.0f : q == 2 ? 0.8f : q == 3 ? 0.6f : 0.7f;
  }
  TANDEM_HD static float fail_chance(int32_t weather, bool wide, float heat) {
    const float base = weather == 0 ? 0.03f : weather == 1 ? 0.1f : 0.25f;
    const float strain = weather == 0 ? 0.15f : weather == 1 ? 0.4f : 0.8f;
    return at_most(base + (wide ? strain * (0.25f + heat) : 0.2f * strain * heat), 0.9f);
  }

  TANDEM_HD static void look_at_gauge(State& s, auto& draws) {
    s.seen.gauge = static_cast<float>(s.hidden.weather) + kGaugeNoise * draws.normal();
    s.seen.gauge_mean = 0.6f * s.seen.gauge_mean + 0.4f * s.seen.gauge;
  }

  TANDEM_HD static void reset(State& s, auto& draws) {
    found_product(s.seen.product, s.hidden.product, rates().birth, draws);
    s.seen.episode = {};
    for (int32_t q = 0; q < kQueues; ++q) {
      s.seen.waiting[q] = static_cast<float>(2 + draws.below(6));
      s.seen.age[q] = static_cast<float>(draws.below(4));
    }
    s.seen.heat = draws.between(0.0f, 0.5f);
    s.hidden.weather = draws.below(3);
    s.seen.gauge_mean = 1.0f;
    look_at_gauge(s, draws);
  }

  TANDEM_HD static StepResult step(State& s, int32_t action, auto& draws) {
    const int32_t queue = action / 2;
    const bool wide = action % 2 == 1;
    const int32_t runners = wide ? 6 : 3;
    const int32_t ready = static_cast<int32_t>(s.seen.waiting[queue]);
    const int32_t run = ready < runners ? ready : runners;

    const float p = fail_chance(s.hidden.weather, wide, s.seen.heat);
    int32_t failures = 0;
    for (int32_t job = 0; job < run; ++job) failures += draws.chance(p) ? 1 : 0;
    const int32_t ended = run - failures;
    const float late = at_most(0.125f * s.seen.age[queue], 1.0f);
    const float saved = priority(queue) * static_cast<float>(ended) * (0.2f + late) * 0.9f;
    s.seen.waiting[queue] -= static_cast<float>(ended);
    s.seen.heat = 0.65f * s.seen.heat + (wide ? 0.35f * static_cast<float>(run) / 6.0f : 0.0f);

    ProductSeen& product = s.seen.product;
    float churn = 0.0f;
    for (int32_t f = 0; f < kFeatures; ++f) churn += product.churn[f];
    if (queue == 1 || queue == 2)
      for (int32_t f = 0; f < kFeatures; ++f)
        product.coverage[f] += 0.09f * static_cast<float>(ended) * (0.95f - product.coverage[f]);
    for (int32_t f = 0; f < kFeatures; ++f) product.coverage[f] *= 0.97f - 0.06f * product.churn[f];

    float dropped = 0.0f;
    for (int32_t q = 0; q < kQueues; ++q) {
      s.seen.age[q] = q == queue && ended > 0 ? 0.0f : s.seen.age[q] + 1.0f;
      const float mean = arrivals(q) * (0.3f + 0.18f * churn);  // churn is about 3
      for (int32_t half = 0; half < 2; ++half) s.seen.waiting[q] += draws.chance(0.5f * mean) ? 1.0f : 0.0f;
      if (s.seen.waiting[q] > kRoom) {
        dropped += s.seen.waiting[q] - kRoom;
        s.seen.waiting[q] = kRoom;
      }
    }

    const bool done = s.seen.episode.time + 1 >= kLength;
    const float escapes = static_cast<float>(pass_day(product, s.hidden.product, rates(), draws));
    const StepResult result =
        settle(weights(), static_cast<float>(ended) / 6.0f, static_cast<float>(run) / static_cast<float>(runners),
               saved, 0.25f * static_cast<float>(failures) + 0.5f * dropped + escapes, done);
    remember(s.seen.episode, action, result);
    if (!draws.chance(kKeepWeather)) s.hidden.weather = draws.below(3);
    look_at_gauge(s, draws);
    return result;
  }

  TANDEM_HD static void observe(const Seen& s, float* out) {
    float* g = out + kGlobal;
    g[0] = 2.0f * static_cast<float>(s.episode.time) / kLength - 1.0f;
    g[1] = 2.0f * s.heat - 0.7f;
    g[2] = s.gauge - 1.0f;
    g[3] = s.gauge_mean - 1.0f;
    g[4] = at_most(0.25f * whole_risk(s.product), 3.0f);
    float churn = 0.0f, coverage = 0.0f;
    int32_t busiest = 0;  // the row shown again at kOwn: the feature with most risk
    for (int32_t f = 0; f < kFeatures; ++f) {
      churn += s.product.churn[f];
      coverage += s.product.coverage[f];
      if (risk_of(s.product, f) > risk_of(s.product, busiest)) busiest = f;
    }
    g[5] = 0.5f * churn - 1.0f;
    g[6] = 0.25f * coverage - 1.0f;
    for (int32_t i = 7; i < kOwn; ++i) g[i] = 0.0f;
    float spread[kFeatures];
    for (int32_t f = 0; f < kFeatures; ++f) spread[f] = escape_chance(s.product, f, 2.0f) - 1.2f;
    observe_product(s.product, s.episode, busiest, spread, out);
    float* own = out + kOwn + kColumns;
    for (int32_t q = 0; q < kQueues; ++q) {
      own[q] = 0.125f * s.waiting[q] - 0.7f;
      own[5 + q] = 0.25f * at_most(s.age[q], 10.0f) - 0.8f;
      const float work = at_most(s.waiting[q], 6.0f);  // what one wide run can take
      own[10 + q] = work / 3.0f - 1.0f;
      own[15 + q] = 0.4f * priority(q) * work * (0.2f + at_most(0.125f * s.age[q], 1.0f)) - 0.5f;
    }
    for (int32_t i = kOwn + kColumns + 20; i < kTable; ++i) out[i] = 0.0f;
  }
};

}  // namespace tandem
