// world/scale.h -- reference returns of the environments: random play, the rule of thumb, the solver, the oracle.
//
// Made by tandem_world_solve (solver/solver.h), for environments with the digest below and no others: a change to an
// environment needs new rows. A score is 0 at random play and 1 at the solver, which sees the observations only and is
// a lower bound of what is possible; a learner may pass 1. The oracle sees the hidden state.
#pragma once

#include <string_view>

namespace tandem {

inline constexpr std::string_view kWebTestDigest = "eb9a196038a3ab231d5cebb4acde8d6b761d39438bea8617fe6c9399846c7dda";

struct WebReturn {
  double mean, error;  // of the return of an episode, and the mean's standard error
};

struct WebScale {
  WebReturn random, rule, tuned, planned, oracle;
  double tuned_params[8];  // of solver/models.h
  // The better of two lower bounds; planning counts where it is better beyond its own error.
  constexpr WebReturn solver() const { return planned.mean - planned.error > tuned.mean ? planned : tuned; }
  constexpr double score(double mean_return) const {
    return (mean_return - random.mean) / (solver().mean - random.mean);
  }
};

// Seed 1; random, rule and tuned: 20,000 episodes. Generation and execution: --plan 120 --oracle 60 --rounds 24, the
// others --plan 100 --oracle 50 --rounds 16; planned and oracle are carried over to all episodes (solver.h).
inline constexpr WebScale kWebScale[6] = {
    // requirements
    {{4.070, 0.036},
     {19.702, 0.036},
     {30.415, 0.031},
     {30.533, 0.084},
     {40.266, 0.514},
     {2.3071, 0.6456, 0.5828, 0.1651, 0.3187, 0.0517, 1.0492, -0.0848}},
    // generation
    {{2.195, 0.022},
     {11.909, 0.018},
     {24.093, 0.017},
     {25.532, 0.143},
     {28.971, 0.228},
     {12.3758, 16.8617, 1.3448, 1.0562, 1.6379, 0.5147, 3.4679, 1.9633}},
    // execution
    {{37.474, 0.070},
     {48.195, 0.045},
     {56.352, 0.042},
     {57.032, 0.423},
     {57.010, 0.693},
     {0.6941, 0.1505, 1.3673, 14.2347, 6.8841, 0.8209, 1.2880, 0.1509}},
    // observation
    {{15.473, 0.047},
     {27.603, 0.051},
     {32.515, 0.055},
     {33.076, 0.208},
     {33.755, 0.288},
     {0.6208, 0.7777, 1.4742, 0.1778, 0.2017, 0.5411, 4.7856, -0.1825}},
    // analysis
    {{-7.643, 0.025},
     {5.729, 0.029},
     {13.792, 0.023},
     {13.907, 0.266},
     {29.052, 0.448},
     {0.7500, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000}},
    // evolution
    {{-6.020, 0.039},
     {14.559, 0.039},
     {27.982, 0.031},
     {28.276, 0.151},
     {38.092, 0.545},
     {1.2810, 11.1588, 6.9989, 1.7287, 2.2856, 0.3098, 1.3360, -0.0452}},
};

}  // namespace tandem
