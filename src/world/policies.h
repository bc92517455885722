// world/policies.h -- policies without learning: uniformly random, and the rule of thumb that a sensible team follows.
//
// A rule sees what the observation shows, uses one or two of its numbers, and plans nothing.
#pragma once

#include "world/analysis_environment.h"
#include "world/evolution_environment.h"
#include "world/execution_environment.h"
#include "world/generation_environment.h"
#include "world/observation_environment.h"
#include "world/requirements_environment.h"

namespace tandem {

TANDEM_HD int32_t random_policy(auto& draws) { return draws.below(kActions); }

// The loudest cue names the strategy; ask back when the text reads vague.
TANDEM_HD int32_t rule_of_thumb(const RequirementsEnvironment::Seen& s) {
  return 2 * loudest_cue(s.item.clues) + (s.vague > 0.8f && s.hours >= 1.0f ? 1 : 0);
}

// The loudest cue names the type; take the template where there are fixtures for it.
TANDEM_HD int32_t rule_of_thumb(const GenerationEnvironment::Seen& s) {
  const int32_t type = loudest_cue(s.item.clues);
  return 2 * type + (s.fixtures[type] > 0.5f ? 1 : 0);
}

// The queue with most waiting by priority; wide while the machines are cool and the gauge is not high.
TANDEM_HD int32_t rule_of_thumb(const ExecutionEnvironment::Seen& s) {
  int32_t best = 0;
  for (int32_t q = 1; q < ExecutionEnvironment::kQueues; ++q)
    if (s.waiting[q] * ExecutionEnvironment::priority(q) > s.waiting[best] * ExecutionEnvironment::priority(best))
      best = q;
  return 2 * best + (s.heat < 0.4f && s.gauge < 1.5f ? 1 : 0);
}

// A fixed threshold in the middle, plain sampling: as most monitors are set up.
TANDEM_HD int32_t rule_of_thumb(const ObservationEnvironment::Seen&) { return 2 * 2; }

// Probe the loudest suspicion once, then say it.
TANDEM_HD int32_t rule_of_thumb(const AnalysisEnvironment::Seen& s) {
  int32_t best = 0;
  for (int32_t k = 1; k < kCauses; ++k)
    if (s.item.clues.cue[k] + s.answers[k] > s.item.clues.cue[best] + s.answers[best]) best = k;
  return 2 * best + (s.probes[best] > 0.0f ? 1 : 0);
}

// The loudest cue names the answer; verify when there is budget.
TANDEM_HD int32_t rule_of_thumb(const EvolutionEnvironment::Seen& s) {
  return 2 * loudest_cue(s.item.clues) + (s.budget >= 1.0f ? 1 : 0);
}

}  // namespace tandem
