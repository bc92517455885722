#include "engine/evaluate.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/errors.h"
#include "base/file_system.h"
#include "engine/gpu_device.h"
#include "engine/kind.h"
#include "engine/run_recipe.h"
#include "engine/snapshot.h"
#include "engine/train_loop.h"

namespace tandem {

int evaluate(const std::filesystem::path& run_dir, const std::filesystem::path& checkpoint,
             const std::vector<RecipeEntry>& recipes) {
  const RunRecipe recipe = recipe_of_run_folder(run_dir, recipes);
  take_device(*recipe.settings);
  TrainLoop loop(*recipe.settings, recipe.make(),
                 ShardPlan::balance(static_cast<int>(recipe.settings->shards), std::vector<double>{1}));
  if (loop.validation().sets().empty())
    throw ConfigError(fmt::format("{} has no validation set", recipe.name),
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
