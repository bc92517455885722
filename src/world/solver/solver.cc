#include "world/solver/solver.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "world/policies.h"

namespace tandem {
namespace {

enum Site : uint32_t { kReset, kStep, kChoice, kImagined, kSearch, kTrial };

PolicyReturn summed_up(std::vector<double> returns, const double* terms) {
  PolicyReturn out;
  const double n = static_cast<double>(returns.size());
  for (double r : returns) out.mean += r / n;
  for (double r : returns) out.error += (r - out.mean) * (r - out.mean);
  out.error = n > 1 ? std::sqrt(out.error / (n - 1) / n) : 0;
  for (int i = 0; i < kTerms; ++i) out.terms[i] = terms[i] / n;
  out.returns = std::move(returns);
  return out;
}

// Plays `episodes` with choose(state, episode, time) -> action.
template <class Env, class Choose>
PolicyReturn play(uint64_t seed, uint32_t site, int episodes, const Choose& choose,
                  const std::function<void(int, double)>& progress = {}) {
  std::vector<double> returns;
  double terms[kTerms] = {};
  for (int episode = 0; episode < episodes; ++episode) {
    typename Env::State state{};
    Draws first = Draws::of({seed, 0, 0, site}, episode);
    Env::reset(state, first);
    double sum = 0;
    for (int time = 0;; ++time) {
      const int action = choose(state, episode, time);
      Draws draws = Draws::of({seed, static_cast<uint64_t>(time + 1), 0, site}, episode);
      const StepResult result = Env::step(state, action, draws);
      sum += result.reward;
      for (int i = 0; i < kTerms; ++i) terms[i] += result.terms[i];
      if (result.done != 0) break;
    }
    returns.push_back(sum);
    if (progress) progress(episode, sum);
  }
  return summed_up(std::move(returns), terms);
}

}  // namespace

PolicyReturn carried_over(const PolicyReturn& few, const PolicyReturn& many) {
  std::vector<double> gains;
  for (size_t i = 0; i < few.returns.size(); ++i) gains.push_back(few.returns[i] - many.returns.at(i));
  const PolicyReturn gain = summed_up(std::move(gains), few.terms);
  PolicyReturn out = few;
  out.mean = many.mean + gain.mean;
  out.error = std::sqrt(gain.error * gain.error + many.error * many.error);
  return out;
}

template <class Env>
PolicyReturn Solver<Env>::play_random(int episodes) const {
  return play<Env>(seed_, kStep, episodes, [&](const State&, int episode, int time) {
    Draws draws = Draws::of({seed_, static_cast<uint64_t>(time), 0, kChoice}, episode);
    return random_policy(draws);
  });
}

template <class Env>
PolicyReturn Solver<Env>::play_rule(int episodes) const {
  return play<Env>(seed_, kStep, episodes, [&](const State& state, int, int) { return rule_of_thumb(state.seen); });
}

template <class Env>
PolicyReturn Solver<Env>::play_tuned(const Params& params, int episodes) const {
  return play<Env>(seed_, kStep, episodes,
                   [&](const State& state, int, int) { return Model<Env>::act(state.seen, params); });
}

template <class Env>
int Solver<Env>::plan(const State& state, const typename Model<Env>::Belief& belief, const Params& params,
                      const PlanSettings& settings, uint64_t decision) const {
  const int own = Model<Env>::act(state.seen, params);
  double sum[kActions] = {}, square[kActions] = {};  // of the gain over the tuned policy's own action
  std::vector<int> race(kActions);
  std::iota(race.begin(), race.end(), 0);
  std::swap(race[0], race[own]);
  const int until = state.seen.episode.time + settings.horizon;
  const auto look = [&](int from, int to) {
    for (int sample = from; sample < to; ++sample) {
      State start = state;
      Draws draws = Draws::of({seed_, decision, 0, kImagined}, int64_t{sample} * 128);
      if (!settings.oracle) belief.sample(state.seen, start.hidden, draws);
      draws.next = (draws.next + 255) / 256 * 256;
      double first = 0;
      for (int action : race) {  // the same luck for each action, as far as it goes
        State imagined = start;
        Draws luck = draws;
        double reward = 0;
        for (int depth = 0, next = action;; ++depth) {
          luck.next = draws.next + static_cast<uint64_t>(depth) * 256;
          const StepResult result = Env::step(imagined, next, luck);
          reward += result.reward;
          if (result.done != 0 || imagined.seen.episode.time > until) break;
          next = Model<Env>::act(imagined.seen, params);
        }
        if (action == own) first = reward;
        sum[action] += reward - first;
        square[action] += (reward - first) * (reward - first);
      }
    }
  };
  look(0, settings.samples);
  std::sort(race.begin() + 1, race.end(), [&](int a, int b) { return sum[a] > sum[b]; });
  race.resize(settings.keep);
  const int count = settings.samples + settings.finals;
  look(settings.samples, count);
  int best = own;
  double most = 0;
  for (int action : race) {
    const double mean = sum[action] / count;
    const double error = std::sqrt(std::max(square[action] / count - mean * mean, 0.0) / count);
    if (mean - settings.doubt * error > most) {
      most = mean - settings.doubt * error;
      best = action;
    }
  }
  return best;
}

template <class Env>
PolicyReturn Solver<Env>::play_plan(const Params& params, const PlanSettings& settings, int episodes,
                                    const std::function<void(int, double)>& progress) const {
  typename Model<Env>::Belief belief;
  Seen before{};
  int last = 0;
  return play<Env>(
      seed_, kStep, episodes,
      [&](const State& state, int episode, int time) {
        if (time == 0)
          belief.begin(state.seen);
        else
          belief.after(before, last, state.seen);
        last =
            plan(state, belief, params, settings, static_cast<uint64_t>(episode) * 256 + static_cast<uint64_t>(time));
        before = state.seen;
        return last;
      },
      progress);
}

template <class Env>
Params Solver<Env>::tune(int rounds, int population, int episodes,
                         const std::function<void(int, double)>& progress) const {
  Params mean = Model<Env>::start(), spread;
  for (int i = 0; i < kMostParams; ++i) spread[i] = 0.5 * std::abs(mean[i]) + 0.3;
  const int elite = std::max(4, population / 6);
  for (int round = 0; round < rounds; ++round) {
    std::vector<Params> tried(population);
    std::vector<double> score(population);
    for (int c = 0; c < population; ++c) {
      Draws draws = Draws::of({seed_, static_cast<uint64_t>(round), 0, kSearch}, c);
      for (int i = 0; i < kMostParams; ++i) tried[c][i] = mean[i] + (c == 0 ? 0.0 : spread[i] * draws.normal());
      // All candidates of a round meet the same episodes; the next round meets others.
      score[c] = play<Env>(seed_ + 1000003 * (round + 1), kTrial, episodes, [&](const State& state, int, int) {
                   return Model<Env>::act(state.seen, tried[c]);
                 }).mean;
    }
    std::vector<int> order(population);
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int a, int b) { return score[a] > score[b]; });
    for (int i = 0; i < kMostParams; ++i) {
      double m = 0, v = 0;
      for (int e = 0; e < elite; ++e) m += tried[order[e]][i] / elite;
      for (int e = 0; e < elite; ++e) v += (tried[order[e]][i] - m) * (tried[order[e]][i] - m) / elite;
      mean[i] = m;
      spread[i] = std::max(0.7 * std::sqrt(v) + 0.3 * spread[i], 0.01);
    }
    if (progress) progress(round, score[order[0]]);
  }
  // The search may have been led astray by luck: it must beat its start on fresh episodes.
  const auto worth = [&](const Params& params) {
    return play<Env>(seed_ + 999983, kTrial, 4000,
                     [&](const State& state, int, int) { return Model<Env>::act(state.seen, params); })
        .mean;
  };
  return worth(mean) > worth(Model<Env>::start()) ? mean : Model<Env>::start();
}

template class Solver<RequirementsEnvironment>;
template class Solver<GenerationEnvironment>;
template class Solver<ExecutionEnvironment>;
template class Solver<ObservationEnvironment>;
template class Solver<AnalysisEnvironment>;
template class Solver<EvolutionEnvironment>;

}  // namespace tandem
