#include "engine/validation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/errors.h"
#include "config/spelling.h"
#include "config/units.h"
#include "reduce/order_free_sum.h"

namespace tandem {
namespace {

constexpr int64_t kStepsWithoutEpochs = 1000;  // between validations of a recipe that has no epochs

std::string full_name(const ValidationSet& set, const ValidationMetric& metric) { return set.name + "/" + metric.name; }

}  // namespace

Validation::Validation(const RecipeSettings& settings, const Recipe& recipe)
    : settings_(settings), recipe_(recipe), sets_(recipe.validation_sets()) {
  const ValidationSettings& s = settings.validation;
  if (sets_.empty()) {
    const std::string asked = !s.best.empty()  ? "validation.best"
                              : s.patience > 0 ? "validation.patience"
                              : !parse_validation_interval(s.every).value().automatic && s.every != "never"
                                  ? "validation.every"
                                  : "";
    if (!asked.empty())
      throw ConfigError(fmt::format("{} is set, but this recipe has no validation set", asked),
                        "there is nothing to validate on, so no step is better than another",
                        "leave it out, or give the recipe a validation set");
    return;
  }
  check_sets();
  choose_metric();
  choose_interval();
  for (const ValidationSet& set : sets_)
    phases_.push_back({.name = "validate " + set.name,
                       .batches = true,
                       .counts = set.counts + set.sums * kSumWords + set.gathered * static_cast<int>(rows_of_pass())});
}

void Validation::check_sets() const {
  std::set<std::string> names;
  for (const ValidationSet& set : sets_) {
    if (!names.insert(set.name).second) throw std::logic_error("two validation sets are named " + set.name);
    if (set.metrics.empty()) throw std::logic_error("the validation set " + set.name + " has no metric");
    const int64_t size = set.data ? set.data->size() : 0;
    if (size >= settings_.shards) continue;
    throw ConfigError(fmt::format("the validation set '{}' has {} samples, fewer than the {} shards", set.name, size,
                                  settings_.shards),
                      "every shard takes its part of it", "give it more samples, or set fewer shards");
  }
}

void Validation::choose_metric() {
  const std::string& wanted = settings_.validation.best;
  std::vector<std::string> known, spellings;
  for (size_t i = 0; i < sets_.size(); ++i)
    for (size_t k = 0; k < sets_[i].metrics.size(); ++k) {
      if (!sets_[i].metrics[k].decides) continue;
      const std::string name = full_name(sets_[i], sets_[i].metrics[k]);
      known.push_back(name);
      spellings.push_back(name);
      if (i == 0) spellings.push_back(sets_[i].metrics[k].name);
      const bool meant = wanted == name || (i == 0 && wanted == sets_[i].metrics[k].name);
      if (!meant && !(wanted.empty() && i + k == 0)) continue;
      best_set_ = i;
      best_metric_ = k;
      state_.metric = name;
    }
  if (!state_.metric.empty()) return;
  const std::string near = nearest_word(wanted, spellings);
  throw ConfigError(fmt::format("validation.best = \"{}\": there is no such metric", printable(wanted)),
                    fmt::format("this recipe's validation gives {}", fmt::join(known, ", ")),
                    near.empty() ? "name one of them, or leave it out" : fmt::format("did you mean `{}`?", near));
}

void Validation::choose_interval() {
  const ValidationInterval interval = parse_validation_interval(settings_.validation.every).value();
  const int64_t epochs = interval.automatic ? 1 : interval.epochs;
  if (epochs == 0) {
    every_ = interval.steps;
  } else if (const int64_t steps = recipe_.steps_in("epochs", epochs); steps > 0) {
    every_ = steps;
  } else if (interval.automatic) {
    every_ = kStepsWithoutEpochs;
  } else {
    throw ConfigError(
        fmt::format("validation.every = \"{}\", but this recipe has no epochs", settings_.validation.every),
        "its data does not come from a set of samples", "give a number of steps: \"500 steps\"");
  }
  if (every_ == 0 && settings_.validation.patience > 0)
    throw ConfigError("validation.patience is set, but validation.every is never",
                      "without validations there is no gain to wait for", "set one of them only");
}

int64_t Validation::passes(size_t set) const { return (sets_[set].data->size() + rows_of_pass() - 1) / rows_of_pass(); }

Slice Validation::slice(size_t set, int64_t pass, int shard) const {
  const int64_t rows = settings_.micro_batch_size(), size = sets_[set].data->size();
  const int64_t start = pass * settings_.shards * rows, first = start + shard * rows;
  Slice slice;
  slice.real_in_update = std::min(settings_.shards * rows, size - start);
  slice.real = std::clamp<int64_t>(size - first, 0, rows);
  for (int64_t i = 0; i < rows; ++i) slice.samples.push_back((first + i) % size);
  return slice;
}

void Validation::begin() {
  totals_.clear();
  gathered_.clear();
  for (const ValidationSet& set : sets_) {
    totals_.emplace_back(static_cast<size_t>(set.counts + set.sums * kSumWords), 0);
    gathered_.emplace_back(static_cast<size_t>(set.gathered * set.data->size()), 0);
  }
}

void Validation::take(size_t set, int64_t pass, std::span<const int64_t> counts) {
  std::vector<int64_t>& total = totals_[set];
  for (size_t i = 0; i < total.size(); ++i) total[i] += counts[i];
  for (int i = 0; i < sets_[set].sums; ++i)
    carry_words(std::span(total).subspan(static_cast<size_t>(sets_[set].counts + i * kSumWords), kSumWords));
  const int64_t size = sets_[set].data->size(), first = pass * rows_of_pass();
  for (int64_t i = 0; i < sets_[set].gathered; ++i)
    std::copy_n(counts.begin() + static_cast<int64_t>(total.size()) + i * rows_of_pass(),
                std::min(rows_of_pass(), size - first), gathered_[set].begin() + i * size + first);
}

NamedValues Validation::finish(int64_t step, bool scheduled) {
  NamedValues values;
  double deciding = kAbsent;
  for (size_t i = 0; i < sets_.size(); ++i) {
    const ValidationSet& set = sets_[i];
    const std::span<const int64_t> total = totals_[i];
    std::vector<double> sums;
    for (int k = 0; k < set.sums; ++k)
      sums.push_back(sum_of_words(total.subspan(static_cast<size_t>(set.counts + k * kSumWords), kSumWords)));
    const std::vector<double> found = recipe_.validation_metrics(
        set, {sums, total.first(static_cast<size_t>(set.counts)), set.data->size(), gathered_[i]});
    if (found.size() != set.metrics.size())
      throw std::logic_error("validation_metrics() of " + set.name +
                             " gives another number of values than its metrics");
    for (size_t k = 0; k < found.size(); ++k) values.emplace_back(full_name(set, set.metrics[k]), found[k]);
    if (i == best_set_) deciding = found[best_metric_];
  }
  std::ranges::stable_partition(values, [&](const auto& value) { return value.first == state_.metric; });
  state_.validated_step = step;
  if (better(deciding)) {
    state_.best = deciding;
    state_.best_step = step;
    state_.without_gain = 0;
  } else if (scheduled) {
    ++state_.without_gain;
  }
  return values;
}

bool Validation::better(double value) const {
  if (!std::isfinite(value)) return false;
  if (!state_.best) return true;
  const double gain =
      sets_[best_set_].metrics[best_metric_].larger_is_better ? value - *state_.best : *state_.best - value;
  return gain > settings_.validation.min_delta;
}

bool Validation::stops() const {
  return settings_.validation.patience > 0 && state_.without_gain >= settings_.validation.patience;
}

nlohmann::json Validation::save() const {
  if (sets_.empty()) return nullptr;
  return {{"metric", state_.metric},
          {"best", state_.best ? nlohmann::json(*state_.best) : nlohmann::json()},
          {"best_step", state_.best_step},
          {"validated_step", state_.validated_step},
          {"without_gain", state_.without_gain},
          {"sets", set_sizes()},
          {"stops", stops()}};
}

nlohmann::json Validation::set_sizes() const {
  nlohmann::json sizes = nlohmann::json::object();
  for (const ValidationSet& set : sets_) sizes[set.name] = set.data->size();
  return sizes;
}

// Of another metric, or of other sets: its best says nothing about these.
void Validation::load(const nlohmann::json& saved) {
  state_ = {.metric = state_.metric};
  if (!saved.is_object() || saved.value("metric", "") != state_.metric) return;
  if (saved.value("sets", set_sizes()) != set_sizes()) return;
  if (const nlohmann::json& best = saved.at("best"); best.is_number()) state_.best = best.get<double>();
  state_.best_step = saved.at("best_step");
  state_.validated_step = saved.at("validated_step");
  state_.without_gain = saved.at("without_gain");
}

}  // namespace tandem
