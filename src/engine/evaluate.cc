#include "engine/evaluate.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/errors.h"
#include "base/file_system.h"
#include "config/resolver.h"
#include "engine/determinism.h"
#include "engine/gpu_device.h"
#include "engine/kind.h"
#include "engine/snapshot.h"
#include "engine/train_loop.h"
#include "nn/portable_vector.h"

namespace tandem {

int evaluate(const std::filesystem::path& run_dir, const std::filesystem::path& checkpoint,
             const std::vector<RecipeEntry>& recipes) {
  const FileBytes text = read_whole_file(FileSystem::real(), run_dir / "recipe.toml", 1 << 20);
  const RecipeEntry& entry = find_recipe_entry(recipes, recipe_named_in(text.text(), "recipe.toml").value_or(""));
  const auto settings = entry.info.settings();
  Resolver resolver(*settings);
  resolver.apply_toml(text.text(), "recipe.toml");
  freeze(resolver, *settings, 1);
  use_portable_vector();
  set_determinism();
  take_device(*settings);
  torch::manual_seed(static_cast<uint64_t>(settings->seed));  // lint: allow(random) for constructors of users
  TrainLoop loop(*settings, entry.make(*settings),
                 ShardPlan::balance(static_cast<int>(settings->shards), std::vector<double>{1}));
  if (loop.validation().sets().empty())
    throw ConfigError(fmt::format("{} has no validation set", entry.info.name),
                      "there is nothing to evaluate its weights on",
                      "give the recipe a validation set (SupervisedRecipe::make_validation_data)");
  const LoadedCheckpoint loaded =
      CheckpointStore::reader(FileSystem::real(), checkpoint.parent_path()).load(checkpoint);
  restore_snapshot(loop, loaded);
  StepRecord record;
  const double begin = monotonic_seconds();
  loop.validate(record, false);
  nlohmann::json metrics = nlohmann::json::object(), samples = nlohmann::json::object();
  for (const auto& [name, value] : record.metrics)
    metrics[name] = std::isfinite(value) ? nlohmann::json(value) : nlohmann::json();
  for (const ValidationSet& set : loop.validation().sets()) samples[set.name] = set.data->size();
  const nlohmann::json out = {{"step", loaded.manifest.step},
                              {"metrics", metrics},
                              {"decides", loop.validation().state().metric},
                              {"samples", samples},
                              {"seconds", monotonic_seconds() - begin},
                              {"digest", digest_of(loop)},
                              {"trained_on", loaded.manifest.kind},
                              {"kind", device_kind()}};
  fmt::print("{}\n", out.dump());
  return std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace tandem
