// world/solver/models.h -- for each world: a belief to draw hidden states from, and a family of policies to search in.
//
// Model<W>::act is a policy on `Seen` with kParams numbers: sensible at Model<W>::start(), to be tuned by search.
// Belief follows the observations of one episode; sample() draws the hidden state given them.
#pragma once

#include <array>

#include "world/analysis_world.h"
#include "world/evolution_world.h"
#include "world/execution_world.h"
#include "world/generation_world.h"
#include "world/observation_world.h"
#include "world/requirements_world.h"

namespace tandem {

inline constexpr int kMostParams = 8;
using Params = std::array<double, kMostParams>;

// Where the open case and the product say all there is to know, the past need not be kept.
template <class W>
struct NoMemory {
  void begin(const typename W::Seen&) {}
  void after(const typename W::Seen&, int, const typename W::Seen&) {}
};

template <class W>
struct Model;

template <>
struct Model<RequirementsWorld> {
  struct Belief : NoMemory<RequirementsWorld> {
    void sample(const RequirementsWorld::Seen& seen, RequirementsWorld::Hidden& hidden, Draws& draws) const;
  };
  static Params start();
  static int act(const RequirementsWorld::Seen& seen, const Params& w);
};

template <>
struct Model<GenerationWorld> {
  struct Belief : NoMemory<GenerationWorld> {
    void sample(const GenerationWorld::Seen& seen, GenerationWorld::Hidden& hidden, Draws& draws) const;
  };
  static Params start();
  static int act(const GenerationWorld::Seen& seen, const Params& w);
};

template <>
struct Model<ExecutionWorld> {
  // A forward filter over the weather: the gauge, and how many jobs failed.
  struct Belief {
    double weather[3];
    void begin(const ExecutionWorld::Seen& seen);
    void after(const ExecutionWorld::Seen& before, int action, const ExecutionWorld::Seen& seen);
    void sample(const ExecutionWorld::Seen& seen, ExecutionWorld::Hidden& hidden, Draws& draws) const;
  };
  static Params start();
  static int act(const ExecutionWorld::Seen& seen, const Params& w);
};

template <>
struct Model<ObservationWorld> {
  // Forward filters: the noise regime from the gauge, each service's sickness from its scores.
  struct Belief {
    double regime[3];
    double sick[kFeatures][ObservationWorld::kLongest];
    void begin(const ObservationWorld::Seen& seen);
    void after(const ObservationWorld::Seen& before, int action, const ObservationWorld::Seen& seen);
    void sample(const ObservationWorld::Seen& seen, ObservationWorld::Hidden& hidden, Draws& draws) const;
  };
  static Params start();
  static int act(const ObservationWorld::Seen& seen, const Params& w);
};

template <>
struct Model<AnalysisWorld> {
  struct Belief : NoMemory<AnalysisWorld> {
    void sample(const AnalysisWorld::Seen& seen, AnalysisWorld::Hidden& hidden, Draws& draws) const;
  };
  static Params start();
  static int act(const AnalysisWorld::Seen& seen, const Params& w);
};

template <>
struct Model<EvolutionWorld> {
  struct Belief : NoMemory<EvolutionWorld> {
    void sample(const EvolutionWorld::Seen& seen, EvolutionWorld::Hidden& hidden, Draws& draws) const;
  };
  static Params start();
  static int act(const EvolutionWorld::Seen& seen, const Params& w);
};

}  // namespace tandem
