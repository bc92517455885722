// world/scale.h -- what playing the worlds is worth: returns of random play, the rule of thumb, the solver and the
// oracle.
//
// Made by tandem_world_solve (solver/solver.h tells how), for the worlds with the digest below and no others: a change
// to a world needs new rows. A score is 0 at random play and 1 at the solver, which sees the observations only and is a
// lower bound of what is possible; a learner may pass 1. The oracle sees the hidden state.
#pragma once

#include <string_view>

namespace tandem {

inline constexpr std::string_view kWebTestDigest = "none";

struct WebReturn {
  double mean, error;  // of the return of an episode, and the mean's standard error
};

struct WebScale {
  WebReturn random, rule, tuned, planned, oracle;
  double tuned_params[8];  // of solver/models.h
  constexpr WebReturn solver() const { return planned.mean > tuned.mean ? planned : tuned; }
  constexpr double score(double mean_return) const {
    return (mean_return - random.mean) / (solver().mean - random.mean);
  }
};

inline constexpr WebScale kWebScale[6] = {};

}  // namespace tandem
