#include "world/solver/models.h"

#include <algorithm>
#include <cmath>

#include "world/solver/belief.h"

namespace tandem {
namespace {

// Share of the episode that is left.
template <class Env>
double left_of(const typename Env::Seen& seen) {
  return 1.0 - static_cast<double>(seen.episode.time) / Env::kLength;
}

double rot_mean(const ProductSeen& seen, int f) { return (2.0 + seen.found[f]) / (2.0 + seen.searched[f]); }

double normal_weight(double x, double mean, double sigma) {
  const double z = (x - mean) / sigma;
  return std::exp(-0.5 * z * z) / sigma;
}

void normalise(double* p, int count) {
  double sum = 0;
  for (int i = 0; i < count; ++i) sum += p[i];
  for (int i = 0; i < count; ++i) p[i] = sum > 1e-280 ? p[i] / sum : 1.0 / count;
}

}  // namespace

// ---- requirements ----

void Model<RequirementsEnvironment>::Belief::sample(const RequirementsEnvironment::Seen& seen,
                                                    RequirementsEnvironment::Hidden& hidden, Draws& draws) const {
  sample_product(seen.product, hidden.product, draws);
  sample_case(seen.item, cause_posterior(seen.item), hidden.item, draws);
  hidden.ambiguous = draws.uniform() < sign_posterior(RequirementsEnvironment::kAmbiguousShare,
                                                      RequirementsEnvironment::kVagueStrength, seen.vague)
                         ? 1
                         : 0;
}

Params Model<RequirementsEnvironment>::start() { return {1.0, 0.3, 0.3, 0.2, 0.5, 0.3, 0.5, 0.0}; }

int Model<RequirementsEnvironment>::act(const RequirementsEnvironment::Seen& seen, const Params& w) {
  const CausePosterior posterior = cause_posterior(seen.item);
  const int best = posterior.best(), f = seen.item.feature;
  const double vague =
      sign_posterior(RequirementsEnvironment::kAmbiguousShare, RequirementsEnvironment::kVagueStrength, seen.vague);
  const double worth = w[0] * vague * (1.0 + w[1] * (rot_mean(seen.product, f) - 1.0)) +
                       w[2] * posterior.p[best] * (seen.product.complexity[f] - 0.5) + w[3] * (seen.hours - 2.5) +
                       w[4] * (1.0 - left_of<RequirementsEnvironment>(seen)) * (seen.hours - w[5]);
  return 2 * best + (seen.hours >= 1.0f && worth > w[6] ? 1 : 0);
}

// ---- generation ----

void Model<GenerationEnvironment>::Belief::sample(const GenerationEnvironment::Seen& seen,
                                                  GenerationEnvironment::Hidden& hidden, Draws& draws) const {
  sample_product(seen.product, hidden.product, draws);
  sample_case(seen.item, cause_posterior(seen.item), hidden.item, draws);
}

Params Model<GenerationEnvironment>::start() { return {4.0, 4.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0}; }

int Model<GenerationEnvironment>::act(const GenerationEnvironment::Seen& seen, const Params& w) {
  const CausePosterior posterior = cause_posterior(seen.item);
  const double left = left_of<GenerationEnvironment>(seen), risk = risk_of(seen.product, seen.item.feature);
  int best = 0;
  double most = -1e30;
  for (int action = 0; action < kActions; ++action) {
    const int type = action / 2;
    const bool from_template = action % 2 == 1;
    const double fixtures = seen.fixtures[type], fit = 0.1 + 0.9 * posterior.p[type];
    const double bite = fit * (from_template ? 0.25 + 0.75 * fixtures : 0.6) * (1 - 0.5 * seen.debt);
    const double smells = from_template ? 2 * (1 - fixtures) : 0.5;
    const double upkeep = GenerationEnvironment::upkeep(type);
    double value = (10 * w[2] + w[3] * risk) * bite - 2 * smells - left * w[1] * smells;
    if (from_template)
      value += 5 * upkeep * (0.4 + 0.6 * fixtures) * (1 - seen.debt) + 3 * fixtures;
    else
      value += 2.5 * upkeep * (1 - seen.debt) +
               left * (w[0] * (1 - fixtures) * (1 + w[5] * (upkeep - 0.7)) + w[4] * fixtures);
    value += w[6] * left * seen.debt * (from_template ? 0 : 1) + w[7] * upkeep * fixtures;
    if (value > most) {
      most = value;
      best = action;
    }
  }
  return best;
}

// ---- execution ----

void Model<ExecutionEnvironment>::Belief::begin(const ExecutionEnvironment::Seen& seen) {
  for (int k = 0; k < 3; ++k) weather[k] = normal_weight(seen.gauge, k, ExecutionEnvironment::kGaugeNoise);
  normalise(weather, 3);
}

void Model<ExecutionEnvironment>::Belief::after(const ExecutionEnvironment::Seen& before, int action,
                                                const ExecutionEnvironment::Seen& seen) {
  const int queue = action / 2;
  const bool wide = action % 2 == 1;
  const int run = std::min(static_cast<int>(before.waiting[queue]), wide ? 6 : 3);
  const int ended = static_cast<int>(std::lround(seen.episode.last_terms[0] * 6.0f));
  double moved[3] = {0, 0, 0};
  for (int k = 0; k < 3; ++k) {
    const double p = ExecutionEnvironment::fail_chance(k, wide, before.heat);
    weather[k] *= std::pow(p, run - ended) * std::pow(1 - p, ended);
  }
  normalise(weather, 3);
  const double keep = ExecutionEnvironment::kKeepWeather;
  for (int k = 0; k < 3; ++k) moved[k] = keep * weather[k] + (1 - keep) / 3.0;
  for (int k = 0; k < 3; ++k) weather[k] = moved[k] * normal_weight(seen.gauge, k, ExecutionEnvironment::kGaugeNoise);
  normalise(weather, 3);
}

void Model<ExecutionEnvironment>::Belief::sample(const ExecutionEnvironment::Seen& seen,
                                                 ExecutionEnvironment::Hidden& hidden, Draws& draws) const {
  sample_product(seen.product, hidden.product, draws);
  hidden.weather = sample_index(weather, 3, draws);
}

Params Model<ExecutionEnvironment>::start() { return {0.6, 4.0, 1.0, 10.0, 3.0, 0.2, 0.5, 0.0}; }

int Model<ExecutionEnvironment>::act(const ExecutionEnvironment::Seen& seen, const Params& w) {
  const double gauge = w[0] * seen.gauge_mean + (1 - w[0]) * seen.gauge;
  double weather[3];
  for (int k = 0; k < 3; ++k) weather[k] = normal_weight(gauge, k, 0.45);
  normalise(weather, 3);
  double uncovered = 0;
  for (int f = 0; f < kFeatures; ++f)
    uncovered += risk_of(seen.product, f) * seen.product.usage[f] * (0.95 - seen.product.coverage[f]);
  const double left = left_of<ExecutionEnvironment>(seen);
  int best = 0;
  double most = -1e30;
  for (int action = 0; action < kActions; ++action) {
    const int queue = action / 2;
    const bool wide = action % 2 == 1;
    const int runners = wide ? 6 : 3, run = std::min(static_cast<int>(seen.waiting[queue]), runners);
    double p = 0, strain = 0;
    for (int k = 0; k < 3; ++k) {
      p += weather[k] * ExecutionEnvironment::fail_chance(k, wide, seen.heat);
      strain += weather[k] * (k == 0 ? 0.15 : k == 1 ? 0.4 : 0.8);
    }
    const double ended = run * (1 - p);
    const double late = std::min(0.125 * seen.age[queue], 1.0);
    double value = 10 * ended / 6 + 5.0 * run / runners +
                   2.7 * ExecutionEnvironment::priority(queue) * ended * (0.2 + late) - 1.25 * (run - ended);
    if (queue == 1 || queue == 2) value += w[1] * left * uncovered * ended;
    value += w[2] * ended * (seen.waiting[queue] > w[3] ? 1 : 0) - (wide ? w[4] * strain * run / 6.0 : 0);
    value -= w[5] * ended * ExecutionEnvironment::priority(queue) * (1 - late) +
             w[6] * ended * (seen.waiting[queue] < 6 ? 1 : 0);
    if (value > most) {
      most = value;
      best = action;
    }
  }
  return best;
}

// ---- observation ----

void Model<ObservationEnvironment>::Belief::begin(const ObservationEnvironment::Seen& seen) {
  for (auto& service : sick)
    for (int age = 0; age < ObservationEnvironment::kLongest; ++age) service[age] = age == 0 ? 1 : 0;
  for (int k = 0; k < 3; ++k) {
    const double sigma = ObservationEnvironment::noise(k);
    regime[k] = normal_weight(seen.gauge, sigma, ObservationEnvironment::kGaugeNoise * sigma);
  }
  normalise(regime, 3);
}

void Model<ObservationEnvironment>::Belief::after(const ObservationEnvironment::Seen& before, int action,
                                                  const ObservationEnvironment::Seen& seen) {
  constexpr int kLongest = ObservationEnvironment::kLongest;
  const bool intense = action % 2 == 1 && before.budget >= 1.0f;
  const double line = ObservationEnvironment::threshold(action / 2);
  double likelihood[3] = {1, 1, 1}, posterior[kFeatures][3][kLongest];
  for (int f = 0; f < kFeatures; ++f) {
    const double mean =
        std::min(0.95, static_cast<double>(risk_of(before.product, f) *
                                           escape_chance(before.product, f, ObservationEnvironment::kEscape)));
    const bool known = seen.product.found[f] > before.product.found[f];  // healed, or reported by users
    for (int k = 0; k < 3; ++k) {
      const double sigma = ObservationEnvironment::noise(k) * (intense ? 0.5 : 1.0);
      double sum = 0;
      for (int age = 0; age < kLongest; ++age) {
        double prior = age == 0 ? sick[f][0] * (1 - mean) : age == 1 ? sick[f][0] * mean : sick[f][age - 1];
        double weight = known ? 1.0 : normal_weight(seen.score[f], ObservationEnvironment::symptom(age), sigma);
        if (age > 0 && !known && seen.score[f] > line) weight *= 1 - before.trust;
        sum += posterior[f][k][age] = prior * weight;
      }
      likelihood[k] *= known ? 1.0 : std::max(sum, 1e-30);
    }
    if (known)
      for (int k = 0; k < 3; ++k)
        for (int age = 0; age < kLongest; ++age) posterior[f][k][age] = age == 0 ? 1 : 0;
  }
  for (int k = 0; k < 3; ++k) regime[k] *= likelihood[k];
  normalise(regime, 3);
  for (int f = 0; f < kFeatures; ++f) {
    for (int age = 0; age < kLongest; ++age) sick[f][age] = 0;
    for (int k = 0; k < 3; ++k) {
      normalise(posterior[f][k], kLongest);
      for (int age = 0; age < kLongest; ++age) sick[f][age] += regime[k] * posterior[f][k][age];
    }
  }
  const double keep = ObservationEnvironment::kKeepRegime;
  for (int k = 0; k < 3; ++k) {
    const double sigma = ObservationEnvironment::noise(k);
    likelihood[k] = (keep * regime[k] + (1 - keep) / 3.0) *
                    normal_weight(seen.gauge, sigma, ObservationEnvironment::kGaugeNoise * sigma);
  }
  for (int k = 0; k < 3; ++k) regime[k] = likelihood[k];
  normalise(regime, 3);
}

void Model<ObservationEnvironment>::Belief::sample(const ObservationEnvironment::Seen& seen,
                                                   ObservationEnvironment::Hidden& hidden, Draws& draws) const {
  sample_product(seen.product, hidden.product, draws);
  for (int f = 0; f < kFeatures; ++f) hidden.sick[f] = sample_index(sick[f], ObservationEnvironment::kLongest, draws);
  hidden.regime = sample_index(regime, 3, draws);
}

Params Model<ObservationEnvironment>::start() { return {0.6, 0.6, 1.6, 0.0, 0.0, 0.7, 3.0, 0.0}; }

int Model<ObservationEnvironment>::act(const ObservationEnvironment::Seen& seen, const Params& w) {
  const double sigma = w[0] * seen.gauge_mean + (1 - w[0]) * seen.gauge;
  double doubtful = 0, symptom = 0;
  for (int f = 0; f < kFeatures; ++f) {
    const double p = 1 / (1 + std::exp(-static_cast<double>(seen.suspicion[f])));
    doubtful += p;
    symptom = std::max(symptom, p);
  }
  const bool intense = seen.budget >= 1.0f && (sigma + 0.3 * w[7] * doubtful > w[5] || seen.budget > w[6]);
  const double aim = w[1] + w[2] * sigma * (intense ? 0.5 : 1.0) + w[3] * (symptom - 0.5) + w[4] * (seen.trust - 0.7);
  int level = 0;
  for (int i = 1; i < 5; ++i)
    if (std::abs(ObservationEnvironment::threshold(i) - aim) < std::abs(ObservationEnvironment::threshold(level) - aim))
      level = i;
  return 2 * level + (intense ? 1 : 0);
}

// ---- analysis ----

namespace {

CausePosterior failure_posterior(const AnalysisEnvironment::Seen& seen) {
  double extra[kCauses];
  for (int k = 0; k < kCauses; ++k)
    extra[k] = 2 * seen.answers[k] / (AnalysisEnvironment::kAnswerNoise * AnalysisEnvironment::kAnswerNoise);
  return cause_posterior(seen.item, extra, AnalysisEnvironment::kClarity);
}

}  // namespace

void Model<AnalysisEnvironment>::Belief::sample(const AnalysisEnvironment::Seen& seen,
                                                AnalysisEnvironment::Hidden& hidden, Draws& draws) const {
  sample_product(seen.product, hidden.product, draws);
  sample_case(seen.item, failure_posterior(seen), hidden.item, draws);
}

Params Model<AnalysisEnvironment>::start() { return {0.75, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0}; }

int Model<AnalysisEnvironment>::act(const AnalysisEnvironment::Seen& seen, const Params& w) {
  const CausePosterior posterior = failure_posterior(seen);
  const int best = posterior.best();
  double probes = 0;
  for (float p : seen.probes) probes += p;
  const bool repeated = seen.item.closed[seen.item.feature][best] >= 1.0f;
  const double enough = w[0] + w[1] * probes + w[2] * (seen.trust - 0.6) + (repeated ? w[3] : 0) +
                        w[4] * (1 - left_of<AnalysisEnvironment>(seen));
  if (posterior.p[best] > enough || seen.episode.time + 1 >= AnalysisEnvironment::kLength) return 2 * best + 1;
  return 2 * (posterior.p[best] - posterior.p[posterior.second()] < w[5] ? posterior.second() : best);
}

// ---- evolution ----

void Model<EvolutionEnvironment>::Belief::sample(const EvolutionEnvironment::Seen& seen,
                                                 EvolutionEnvironment::Hidden& hidden, Draws& draws) const {
  sample_product(seen.product, hidden.product, draws);
  sample_case(seen.item, cause_posterior(seen.item), hidden.item, draws);
}

Params Model<EvolutionEnvironment>::start() { return {1.0, 10.0, 5.0, 1.0, 3.0, 0.0, 0.0, 0.0}; }

int Model<EvolutionEnvironment>::act(const EvolutionEnvironment::Seen& seen, const Params& w) {
  const CausePosterior posterior = cause_posterior(seen.item);
  int best = 0;
  double most = -1e30, doubt = 0;
  for (int k = 0; k < kCauses; ++k) {
    const double gain = 15 * EvolutionEnvironment::heals(k) + 10 * EvolutionEnvironment::covers(k) +
                        5 * EvolutionEnvironment::optimises(k);
    const double value = posterior.p[k] * (gain + w[0]);
    if (value > most) {
      most = value;
      best = k;
      doubt = 1 - posterior.p[k];
    }
  }
  const int f = seen.item.feature;
  const double worth = w[1] * doubt * (1 + w[5] * (rot_mean(seen.product, f) - 1)) + w[2] * seen.brittle[f] +
                       w[3] * (seen.budget - 2) + w[6] * (1 - left_of<EvolutionEnvironment>(seen)) * (seen.budget - 1);
  return 2 * best + (seen.budget >= 1.0f && worth > w[4] ? 1 : 0);
}

}  // namespace tandem
