// cli/train.cc -- `tandem train`: resolve, check, make the run's folder, start the worker.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>

#include "base/errors.h"
#include "base/shell_word.h"
#include "cli/commands.h"
#include "cli/train_set.h"
#include "command/start.h"
#include "launch/rank_info.h"
#include "launch/rendezvous.h"
#include "launch/run_lock.h"
#include "runs/index.h"
#include "runs/run_folder.h"
#include "tools/plan/plan.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// The run that holds a checkpoint folder, `.../checkpoints/step-00000200`.
bool is_checkpoint_folder(const fs::path& path) {
  return fs::is_regular_file(path / "manifest.json") && fs::absolute(path).parent_path().filename() == "checkpoints";
}

// `recipe` is empty where none was named: the run knows its own.
int resume_from_train(const Command& command, const std::string& recipe) {
  const std::string& from = *command.arguments.resume;
  const fs::path root = runs_root(command.arguments);
  if (command.arguments.run_dir && from != "last")
    throw ConfigError("--run-dir and --resume name two runs", "a resumed run goes on in its own folder",
                      "leave --run-dir out");
  if (command.arguments.run_dir && from == "last") return resume_run(command, *command.arguments.run_dir, std::nullopt);
  if (from == "last" && !recipe.empty()) {
    const auto runs = RunIndex(root).list({.recipe = recipe, .limit = 1});
    if (runs.empty()) {
      throw ConfigError(fmt::format("there is no run of {} to resume", recipe),
                        fmt::format("{} holds none", (root / "").string()),
                        fmt::format("begin one with `{} train {}`, or name the folder of all runs with --runs-root",
                                    command.context.program, recipe));
    }
    return resume_run(command, runs.front().dir, std::nullopt);
  }
  fs::path path = from;
  if (!path.has_filename()) path = path.parent_path();  // "runs/x/" as the shell completes it
  if (is_checkpoint_folder(path)) return resume_run(command, fs::absolute(path).parent_path().parent_path(), path);
  const RunFolder run = RunFolder::find(root, from);
  if (!recipe.empty() && !run.recipe().empty() && run.recipe() != recipe)
    throw ConfigError(fmt::format("{} is a run of {}, not of {}", run.id(), run.recipe(), recipe),
                      "a run goes on with its own recipe",
                      fmt::format("use `{} resume {}`", command.context.program, shell_word(run.id())));
  return resume_run(command, run.dir(), std::nullopt);
}

// `--from RUN`, by the recipe that is named, else by that of the run.
int train_from(const Command& command) {
  std::string recipe = command.subject();
  if (recipe.empty()) recipe = recipe_of_run(RunFolder::find(runs_root(command.arguments), *command.arguments.from));
  const RecipeInfo& info = find_recipe(command.context.recipes, recipe);
  if (info.train_from) return info.train_from(command);
  std::vector<std::string> names;
  for (const RecipeInfo& other : command.context.recipes)
    if (other.train_from) names.push_back(other.name);
  throw ConfigError(fmt::format("{} has no --from", recipe),
                    names.empty() ? "none of these recipes has" : fmt::format("{} have", fmt::join(names, ", ")),
                    fmt::format("leave it out; `{} resume` goes on with any run", command.context.program));
}

}  // namespace

int run_train(const Command& command) {
  if (command.arguments.from) return train_from(command);
  if (command.arguments.full || command.arguments.print_timer)
    throw ConfigError(command.arguments.full ? "--full without --from" : "--print-timer without --from",
                      "both are about going on with a trained run", "name the run: --from last");
  // A job that its launcher started again (torchrun --max-restarts, a requeued one of Slurm) goes on with its run.
  const bool restarts = restarts_in([](const char* name) -> const char* { return std::getenv(name); });
  if (restarts && command.arguments.run_dir && !command.arguments.resume &&
      fs::exists(fs::path(*command.arguments.run_dir) / "recipe.toml"))
    return resume_run(command, *command.arguments.run_dir, std::nullopt);
  if (command.arguments.resume && command.subject().empty()) return resume_from_train(command, "");
  ResolvedRecipe recipe = resolve_recipe(command.subject(), command.arguments, command.context, command.output);
  if (command.arguments.resume) return resume_from_train(command, recipe.name);

  const RecipeInfo& info = find_recipe(command.context.recipes, recipe.name);
  if (info.before_train) info.before_train(command, recipe);
  if (const JobSet* set = set_of(info, *recipe.settings)) return train_set(command, recipe, *set);
  const auto devices = settle(recipe, command);
  if (command.arguments.dry_run) {
    show_dry_run(command, recipe, devices);
    return 0;
  }
  check_worker_program(command.context);
  std::optional<fs::path> exact_dir;
  if (command.arguments.run_dir) exact_dir = *command.arguments.run_dir;
  const RunFolder run = RunFolder::create(runs_root(command.arguments), recipe.name, exact_dir);
  const fs::path link = exact_dir ? run.link_into(runs_root(command.arguments)) : fs::path();
  const RunLock lock(run.dir());
  run.write_recipe(recipe.resolver->to_toml(recipe.name));
  // The worker says all this when it is up; -v shows it before.
  command.output.detail(fmt::format("{}: {}", recipe.name, batch_line(*recipe.settings)));
  command.output.detail(plan_line(*recipe.settings, devices));
  command.output.detail(fmt::format("run {}", run.dir().string()));
  try {
    const int code =
        start_run(command, recipe, devices, run.dir(), false, {}, forecast_of_run(command, recipe, devices));
    note_outcome(run.dir(), recipe.name);
    return code;
  } catch (const Error& error) {
    // Refused before the first step: a folder in which nothing was trained would only be in the way.
    if (error.code() == ExitCode::kUsage && !fs::exists(run.metrics_jsonl())) {
      fs::remove_all(run.dir());
      if (!link.empty()) fs::remove(link);
    }
    throw;
  }
}

}  // namespace tandem
