#include "engine/evaluate.h"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/errors.h"
#include "base/file_system.h"
#include "base/plain_file.h"
#include "engine/gpu_device.h"
#include "engine/kind.h"
#include "engine/precision.h"
#include "engine/run_recipe.h"
#include "engine/snapshot.h"
#include "engine/train_loop.h"

namespace tandem {

namespace {

bool trains_nothing = false;  // set before the recipe is made, in a process that answers one question and ends

// A run's job with all its shards, at the weights of a checkpoint.
struct RestoredJob {
  RunRecipe recipe;
  std::unique_ptr<TrainLoop> loop;
  LoadedCheckpoint loaded;

  RestoredJob(const std::filesystem::path& run_dir, const std::filesystem::path& checkpoint,
              const std::vector<RecipeEntry>& recipes, bool to_validate)
      : recipe(recipe_of_run_folder(run_dir, recipes)) {
    trains_nothing = !to_validate;
    take_device(*recipe.settings);
    loop = std::make_unique<TrainLoop>(
        *recipe.settings, recipe.make(),
        ShardPlan::balance(static_cast<int>(recipe.settings->shards), std::vector<double>{1}));
    if (to_validate && loop->validation().sets().empty())
      throw ConfigError(fmt::format("{} has no validation set", recipe.name),
                        "there is nothing to evaluate its weights on",
                        "give the recipe a validation set (SupervisedRecipe::make_validation_data)");
    loaded = CheckpointStore::reader(FileSystem::real(), checkpoint.parent_path()).load(checkpoint);
    restore_snapshot(*loop, loaded);
  }

  int print(nlohmann::json out, double seconds) {
    out["step"] = loaded.manifest.step;
    out["seconds"] = seconds;
    out["digest"] = digest_of(*loop);
    out["trained_on"] = loaded.manifest.kind;
    out["kind"] = device_kind(loop->recipe().has_own_arithmetic());
    fmt::print("{}\n", out.dump());
    return std::fflush(stdout) == 0 ? 0 : 1;
  }
};

}  // namespace

bool only_answers() { return trains_nothing; }

int evaluate(const std::filesystem::path& run_dir, const std::filesystem::path& checkpoint,
             const std::vector<RecipeEntry>& recipes) {
  RestoredJob job(run_dir, checkpoint, recipes, /*to_validate=*/true);
  TrainLoop& loop = *job.loop;
  StepRecord record;
  const double begin = monotonic_seconds();
  loop.validate(record, false);
  const double seconds = monotonic_seconds() - begin;
  nlohmann::json metrics = nlohmann::json::object(), order = nlohmann::json::array();
  nlohmann::json samples = nlohmann::json::object();
  for (const auto& [name, value] : record.metrics) {
    metrics[name] = std::isfinite(value) ? nlohmann::json(value) : nlohmann::json();
    order.push_back(name);
  }
  for (const ValidationSet& set : loop.validation().sets()) samples[set.name] = set.data->size();
  return job.print(
      {{"metrics", metrics}, {"order", order}, {"decides", loop.validation().state().metric}, {"samples", samples}},
      seconds);
}

int ask(const std::filesystem::path& run_dir, const std::filesystem::path& checkpoint,
        const std::filesystem::path& question, const std::vector<RecipeEntry>& recipes) {
  std::ifstream file = read_plain_file(question);
  if (!file) throw IoError(fmt::format("{} can't be read", question.string()), ENOENT, "name another file");
  const std::string asked{std::istreambuf_iterator<char>(file), {}};
  RestoredJob job(run_dir, checkpoint, recipes, /*to_validate=*/false);
  job.loop->state().begin_evaluation();
  const double begin = monotonic_seconds();
  const PrecisionScope precision(job.recipe.settings->precision);  // as training and validation ran
  const std::string answer = job.loop->recipe().answer(asked, job.loop->state());
  return job.print({{"answer", nlohmann::json::parse(answer)}}, monotonic_seconds() - begin);
}

}  // namespace tandem
