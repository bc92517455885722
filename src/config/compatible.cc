// config/compatible.cc -- may a run go on with these settings? (check_compatible and freeze of config/resolver.h)
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "config/resolver.h"

namespace tandem {
namespace {

void check_shards(const nlohmann::json& then, const nlohmann::json& now, std::string_view where) {
  if (!then.contains("shards") || !now.contains("shards") || then["shards"] == now["shards"]) return;
  const std::string had = then["shards"].dump(), asks = now["shards"].dump();
  throw ConfigError(
      fmt::format("cannot resume {}: the checkpoint has {} shards, the recipe asks for {}", where, had, asks),
      fmt::format("the shard count fixes the random streams; {} would be another experiment, not a continuation", asks),
      fmt::format("set `shards = {}`, or begin anew with `tandem train`", had));
}

// Keys that checkpoints of earlier versions lack, though they decide the weights: these have them in recipe.toml alone,
// or are of a time when there was only what is the default now.
bool is_younger(const std::string& key, const nlohmann::json& now) {
  if (key == "data_last") return now == nlohmann::json(0);
  if (key == "market.fair") return now == nlohmann::json(false);
  return key == "experience.split" || key == "experience.state_size" || key == "experience.actions";
}

// A number in a JSON file may have lost its ".0"; 1 and 1.0 are the same setting. json's == sees to it.
std::string difference(const std::string& key, const nlohmann::json& then, const nlohmann::json& now) {
  if (!then.contains(key)) return fmt::format("`{}` is {}, the checkpoint knows no such key", key, now[key].dump());
  if (!now.contains(key))
    return fmt::format("the checkpoint has `{} = {}`, the recipe knows no such key", key, then[key].dump());
  return fmt::format("`{}` is {}, the checkpoint has {}", key, now[key].dump(), then[key].dump());
}

void freeze_stop_rule(Resolver& resolver, RecipeSettings& settings) {
  const std::pair<const char*, int64_t*> rules[] = {{"steps", &settings.steps},
                                                    {"epochs", &settings.epochs},
                                                    {"episodes", &settings.episodes},
                                                    {"iterations", &settings.iterations}};
  // A person who asks for 3 epochs does not mean "or the recipe's 200 steps, whichever comes first": the rules of the
  // strongest source count, and those of weaker ones are switched off.
  int strongest = 0;
  std::string chosen;
  for (const auto& [key, value] : rules) {
    if (*value == 0 || resolver.strength(key) <= strongest) continue;
    strongest = resolver.strength(key);
    chosen = key;
  }
  if (chosen.empty()) return;
  for (const auto& [key, value] : rules) {
    if (*value > 0 && resolver.strength(key) < strongest) {
      *value = 0;
      resolver.note_source(key, fmt::format("off, because {} was given", chosen));
    }
  }
}

}  // namespace

void check_compatible(const nlohmann::json& checkpoint_values, const nlohmann::json& now, std::string_view where) {
  check_shards(checkpoint_values, now, where);
  std::vector<std::string> differing;
  for (const auto& [key, value] : now.items()) {
    if (!checkpoint_values.contains(key) && is_younger(key, value)) continue;
    if (!checkpoint_values.contains(key) || checkpoint_values[key] != value) {
      differing.push_back(difference(key, checkpoint_values, now));
    }
  }
  for (const auto& [key, value] : checkpoint_values.items()) {
    if (!now.contains(key)) differing.push_back(difference(key, checkpoint_values, now));
  }
  if (differing.empty()) return;
  throw ConfigError(fmt::format("cannot resume {}: {}", where, fmt::join(differing, "; ")),
                    differing.size() == 1
                        ? "this setting decides the weights; changed, it would be another experiment"
                        : "these settings decide the weights; changed, it would be another experiment",
                    "leave them as they were, or begin anew with `tandem train`");
}

void freeze(Resolver& resolver, RecipeSettings& settings, int device_count) {
  if (settings.shards_from_devices) {
    const std::string source =
        fmt::format("{} devices at the start, {} samples each", device_count, settings.batch_size);
    settings.shards_from_devices = false;
    settings.shards = device_count;
    settings.batch_size *= device_count;
    resolver.note_source("shards", source);
    resolver.note_source("batch_size", source);
  }
  freeze_stop_rule(resolver, settings);
  if (settings.schedule.kind == "cosine" && settings.schedule.total_steps == 0 && settings.steps > 0) {
    settings.schedule.total_steps = settings.steps;
    resolver.note_source("schedule.total_steps", "steps at the start");
  }
  settings.check();
}

}  // namespace tandem
