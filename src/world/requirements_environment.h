// world/requirements_environment.h -- the requirements agent: which coverage strategy for the next requirement text,
// how deep.
//
// A requirement of a feature arrives each day. Its domain (hidden, five of them) decides which strategy suits; it may
// be ambiguous (hidden, with a weak cue). Action = 2 * strategy + thorough; thorough reading asks back and costs an
// hour of few. What is misread becomes a defect of the feature, and users find it days later: that is the term
// `missed`.
#pragma once

#include "world/clues.h"

namespace tandem {

struct RequirementsEnvironment {
  struct Seen {
    ProductSeen product;
    EpisodeSeen episode;
    CaseSeen item;
    float vague;  // cue of ambiguity
    float hours;
  };
  struct Hidden {
    ProductHidden product;
    CaseHidden item;
    int32_t ambiguous;
  };
  struct State {
    Seen seen;
    Hidden hidden;
  };

  static constexpr int32_t kLength = 40;
  TANDEM_HD static DayRates rates() { return {0.02f, 0.12f}; }
  static constexpr float kMostHours = 4.0f, kHoursADay = 0.45f, kAmbiguousShare = 0.4f, kVagueStrength = 1.3f;
  TANDEM_HD static TermWeights weights() { return {{2.0f, 5.0f, 3.0f, -10.0f}, 0.1f}; }

  TANDEM_HD static float miss_chance(bool suits, bool read_vaguely) {
    return (suits ? 0.04f : 0.28f) + (read_vaguely ? 0.2f : 0.0f);
  }

  TANDEM_HD static void next_case(State& s, auto& draws) {
    open_case(s.seen.item, s.hidden.item, draws.below(kFeatures), draws);
    s.hidden.ambiguous = draws.chance(kAmbiguousShare) ? 1 : 0;
    s.seen.vague = kVagueStrength * static_cast<float>(s.hidden.ambiguous) + draws.normal();
  }

  TANDEM_HD static void reset(State& s, auto& draws) {
    found_product(s.seen.product, s.hidden.product, rates().birth, draws);
    found_cases(s.seen.item, s.hidden.item, draws);
    s.seen.episode = {};
    s.seen.hours = 2.0f;
    next_case(s, draws);
  }

  TANDEM_HD static StepResult step(State& s, int32_t action, auto& draws) {
    const int32_t f = s.seen.item.feature;
    const bool suits = action / 2 == s.hidden.item.cause;
    const bool thorough = action % 2 == 1 && s.seen.hours >= 1.0f;
    if (thorough) s.seen.hours -= 1.0f;
    s.seen.hours = at_most(s.seen.hours + kHoursADay, kMostHours);

    const bool ambiguous = s.hidden.ambiguous != 0;
    const float scenarios = (suits ? 3.0f : 1.0f) + (thorough ? 0.5f : 0.0f);
    const bool has_edge = draws.chance(0.3f + 0.6f * s.seen.product.complexity[f]);
    const float edges = suits && has_edge ? (thorough ? 1.5f : 1.0f) : 0.0f;
    const float resolved = thorough && ambiguous ? 1.0f : 0.0f;
    may_leave_defect(s.seen.product, s.hidden.product, f, miss_chance(suits, ambiguous && !thorough), draws);
    close_case(s.seen.item, s.hidden.item);

    const bool done = s.seen.episode.time + 1 >= kLength;
    float missed = static_cast<float>(pass_day(s.seen.product, s.hidden.product, rates(), draws));
    // The release's audit finds what is left: a late mistake is not free.
    if (done) missed += 0.7f * static_cast<float>(whole_defects(s.hidden.product));
    const StepResult result = settle(weights(), scenarios, edges, resolved, missed, done);
    remember(s.seen.episode, action, result);
    next_case(s, draws);
    return result;
  }

  TANDEM_HD static void observe(const Seen& s, float* out) {
    float* g = out + kGlobal;
    g[0] = 2.0f * static_cast<float>(s.episode.time) / kLength - 1.0f;
    g[1] = 0.5f * (s.hours - 2.0f);
    g[2] = s.hours >= 1.0f ? 1.0f : -1.0f;
    g[3] = s.vague - 0.5f;
    g[4] = at_most(0.25f * whole_risk(s.product), 3.0f);
    for (int32_t i = 5; i < kOwn; ++i) g[i] = 0.0f;
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
