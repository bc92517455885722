// cli/resume.cc -- `tandem resume`: the run's own settings, what was given again over them, and a check that what
// decides the weights is still the same.
#include <fmt/format.h>

#include <algorithm>

#include "base/file_system.h"
#include "checkpoint/digest.h"
#include "checkpoint/store.h"
#include "checkpoint/verify.h"
#include "cli/commands.h"
#include "cli/train_set.h"
#include "command/start.h"
#include "launch/pinned_recipe.h"
#include "launch/run_lock.h"
#include "runs/recipe_file.h"
#include "runs/run_folder.h"
#include "runs/run_places.h"
#include "telemetry/atomic_file.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// The newest checkpoint that is whole, if it has the steps that were asked for. Every byte is verified: a damaged one
// has not reached the goal, whatever its manifest says, and the launcher goes back to the one before.
std::optional<LoadedCheckpoint> reached(const RunFolder& run, int64_t steps) {
  auto newest = CheckpointStore::reader(FileSystem::real(), run.checkpoints()).load_newest();
  return newest && newest->manifest.step >= steps ? std::move(newest) : std::nullopt;
}

// The run has reached its goal: tell what it reached, change nothing.
int already_there(const Command& command, const RunFolder& run, const LoadedCheckpoint& newest, int64_t steps) {
  command.output.say(
      fmt::format("{} is at step {}, and {} were asked for: nothing to do", run.id(), newest.manifest.step, steps));
  for (const std::string& refused : newest.refused) command.output.warn(fmt::format("passed over {}", refused));
  if (!command.output.json()) return 0;
  command.output.object({{"run", run.id()},
                         {"dir", fs::absolute(run.dir()).string()},
                         {"recipe", run.recipe()},
                         {"status", "done"},
                         {"step", newest.manifest.step},
                         {"digest", weights_digest(newest.model.tensors())},
                         {"kind", newest.manifest.kind},
                         {"exit_code", 0}});
  return 0;
}

}  // namespace

int resume_run(const Command& command, const fs::path& run_dir, const std::optional<fs::path>& checkpoint) {
  const RunFolder run = RunFolder::open(run_dir);
  check_run_places(run.dir());
  // A job of a set trains what the set began with, whatever its recipe.toml has become while it waited.
  const std::optional<std::string> given = recipe_given();
  ResolvedRecipe recipe =
      given ? resolve_run_text(*given, run.recipe_toml().string(), command.arguments, command.context, command.output)
            : resolve_run(run.recipe_toml(), command.arguments, command.context, command.output);
  const RecipeInfo& info = find_recipe(command.context.recipes, recipe.name);
  if (info.before_resume) info.before_resume(recipe, run.dir());
  if (const JobSet* set = set_of(info, *recipe.settings)) return resume_set(command, recipe, *set, run);
  const auto manifest = checkpoint ? std::optional(manifest_in(*checkpoint)) : newest_manifest(run.checkpoints());
  // Before anything else about the settings: another shard count may break other rules too, and this is the cause.
  if (manifest) check_compatible(manifest->settings, recipe.resolver->result_values(), run.id());
  const auto devices = settle(recipe, command);
  if (command.arguments.dry_run) {
    show_dry_run(command, recipe, devices);
    return 0;
  }
  if (const auto& schedule = recipe.settings->schedule; schedule.kind == "cosine" && schedule.min_factor == 0 &&
                                                        schedule.total_steps > 0 &&
                                                        recipe.settings->steps > schedule.total_steps)
    command.output.warn(fmt::format(
        "the learning rate is 0 after step {}, where the cosine ends: steps up to {} learn nothing; a new run with "
        "--steps {} would",
        schedule.total_steps, recipe.settings->steps, recipe.settings->steps));
  check_worker_program(command.context);
  const RunLock lock(run.dir());
  const int64_t steps_asked = recipe.settings->steps;
  if (manifest && !checkpoint && steps_asked > 0 && manifest->step >= steps_asked)
    if (const auto newest = reached(run, steps_asked)) return already_there(command, run, *newest, steps_asked);
  if (given && !same_but_for_place(read_small_file(run.recipe_toml(), 1 << 20).value_or(""), *given))
    if (const std::string words = put_recipe_right(run.dir(), *given, "the set"); !words.empty())
      command.output.warn(words);
  const std::string recipe_before(read_whole_file(FileSystem::real(), run.recipe_toml(), 1 << 20).text());
  run.write_recipe(recipe.resolver->to_toml(recipe.name));
  // The worker says all this when it is up; -v shows it before.
  command.output.detail(fmt::format("{}: {}", recipe.name, batch_line(*recipe.settings)));
  command.output.detail(plan_line(*recipe.settings, devices));
  command.output.detail(manifest
                            ? fmt::format("resume {} after step {}", run.dir().string(), manifest->step)
                            : fmt::format("resume {} from the start: it has no checkpoint yet", run.dir().string()));
  // An older one must be named; the newest is what a resume takes anyway.
  const auto steps = CheckpointStore::reader(FileSystem::real(), run.checkpoints()).steps();
  const fs::path named = checkpoint && (steps.empty() || manifest->step != steps.back()) ? *checkpoint : fs::path();
  try {
    return start_run(command, recipe, devices, run.dir(), true, named);
  } catch (const Error& error) {
    // Refused before the first step: the run stays as it was, so that the next resume finds settings that work.
    if (error.code() == ExitCode::kUsage || error.code() == ExitCode::kCheckpointUnusable)
      run.write_recipe(recipe_before);
    throw;
  }
}

int run_resume(const Command& command) {
  const RunFolder run = RunFolder::find(runs_root(command.arguments), command.subject("last"));
  return resume_run(command, run.dir(), std::nullopt);
}

}  // namespace tandem
