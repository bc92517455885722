// world/solver/models.h -- for each environment: a belief to draw hidden states from, and a family of policies to tune.
//
// Model<Env>::act is a policy on `Seen` with kParams numbers: sensible at Model<Env>::start(), to be tuned by search.
// Belief follows the observations of one episode; sample() draws the hidden state given them.
#pragma once

#include <array>

#include "world/analysis_environment.h"
#include "world/evolution_environment.h"
#include "world/execution_environment.h"
#include "world/generation_environment.h"
#include "world/observation_environment.h"
#include "world/requirements_environment.h"

namespace tandem {

inline constexpr int kMostParams = 8;
using Params = std::array<double, kMostParams>;

// Where the open case and the product say all there is to know, the past need not be kept.
template <class Env>
struct NoMemory {
  void begin(const typename Env::Seen&) {}
  void after(const typename Env::Seen&, int, const typename Env::Seen&) {}
};

template <class Env>
struct Model;

template <>
struct Model<RequirementsEnvironment> {
  struct Belief : NoMemory<RequirementsEnvironment> {
    void sample(const RequirementsEnvironment::Seen& seen, RequirementsEnvironment::Hidden& hidden, Draws& draws) const;
  };
  static Params start();
  static int act(const RequirementsEnvironment::Seen& seen, const Params& w);
};

template <>
struct Model<GenerationEnvironment> {
  struct Belief : NoMemory<GenerationEnvironment> {
    void sample(const GenerationEnvironment::Seen& seen, GenerationEnvironment::Hidden& hidden, Draws& draws) const;
  };
  static Params start();
  static int act(const GenerationEnvironment::Seen& seen, const Params& w);
};

template <>
struct Model<ExecutionEnvironment> {
  // A forward filter over the weather: the gauge, and how many jobs failed.
  struct Belief {
    double weather[3];
    void begin(const ExecutionEnvironment::Seen& seen);
    void after(const ExecutionEnvironment::Seen& before, int action, const ExecutionEnvironment::Seen& seen);
    void sample(const ExecutionEnvironment::Seen& seen, ExecutionEnvironment::Hidden& hidden, Draws& draws) const;
  };
  static Params start();
  static int act(const ExecutionEnvironment::Seen& seen, const Params& w);
};

template <>
struct Model<ObservationEnvironment> {
  // Forward filters: the noise regime from the gauge, each service's sickness from its scores.
  struct Belief {
    double regime[3];
    double sick[kFeatures][ObservationEnvironment::kLongest];
    void begin(const ObservationEnvironment::Seen& seen);
    void after(const ObservationEnvironment::Seen& before, int action, const ObservationEnvironment::Seen& seen);
    void sample(const ObservationEnvironment::Seen& seen, ObservationEnvironment::Hidden& hidden, Draws& draws) const;
  };
  static Params start();
  static int act(const ObservationEnvironment::Seen& seen, const Params& w);
};

template <>
struct Model<AnalysisEnvironment> {
  struct Belief : NoMemory<AnalysisEnvironment> {
    void sample(const AnalysisEnvironment::Seen& seen, AnalysisEnvironment::Hidden& hidden, Draws& draws) const;
  };
  static Params start();
  static int act(const AnalysisEnvironment::Seen& seen, const Params& w);
};

template <>
struct Model<EvolutionEnvironment> {
  struct Belief : NoMemory<EvolutionEnvironment> {
    void sample(const EvolutionEnvironment::Seen& seen, EvolutionEnvironment::Hidden& hidden, Draws& draws) const;
  };
  static Params start();
  static int act(const EvolutionEnvironment::Seen& seen, const Params& w);
};

}  // namespace tandem
