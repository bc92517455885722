// cli/train.cc -- `tandem train`: resolve, check, make the run's folder, start the worker.
#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/start.h"
#include "launch/run_lock.h"
#include "runs/index.h"
#include "runs/run_folder.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// The run that holds a checkpoint folder, `.../checkpoints/step-00000200`.
bool is_checkpoint_folder(const fs::path& path) {
  return fs::is_regular_file(path / "manifest.json") && fs::absolute(path).parent_path().filename() == "checkpoints";
}

int resume_from_train(const Command& command, const ResolvedRecipe& recipe) {
  const std::string& from = *command.arguments.resume;
  const fs::path root = runs_root(command.arguments);
  if (command.arguments.run_dir && from == "last") return resume_run(command, *command.arguments.run_dir, std::nullopt);
  if (from == "last") {
    const auto runs = RunIndex(root).list({.recipe = recipe.name, .limit = 1});
    if (runs.empty()) {
      throw ConfigError(fmt::format("there is no run of {} to resume", recipe.name),
                        fmt::format("{} holds none", (root / "").string()),
                        fmt::format("begin one with `{} train {}`, or name the folder of all runs with --runs-root",
                                    command.context.program, recipe.name));
    }
    return resume_run(command, runs.front().dir, std::nullopt);
  }
  fs::path path = from;
  if (!path.has_filename()) path = path.parent_path();  // "runs/x/" as the shell completes it
  if (is_checkpoint_folder(path)) return resume_run(command, fs::absolute(path).parent_path().parent_path(), path);
  return resume_run(command, RunFolder::find(root, from).dir(), std::nullopt);
}

}  // namespace

int run_train(const Command& command) {
  ResolvedRecipe recipe = resolve_recipe(command.subject(), command.arguments, command.context, command.output);
  if (command.arguments.resume) return resume_from_train(command, recipe);

  const auto devices = settle(recipe, command.context);
  if (command.arguments.dry_run) {
    show_dry_run(command, recipe, devices);
    return 0;
  }
  check_worker_program(command.context);
  std::optional<fs::path> exact_dir;
  if (command.arguments.run_dir) exact_dir = *command.arguments.run_dir;
  const RunFolder run = RunFolder::create(runs_root(command.arguments), recipe.name, exact_dir);
  const RunLock lock(run.dir());
  run.write_recipe(recipe.resolver->to_toml(recipe.name));
  // The worker says all this when it is up; -v shows it before.
  command.output.detail(fmt::format("{}: {}", recipe.name, batch_line(*recipe.settings)));
  command.output.detail(plan_line(*recipe.settings, devices));
  command.output.detail(fmt::format("run {}", run.dir().string()));
  return start_worker(command, recipe, run.dir(), run.id(), {});
}

}  // namespace tandem
