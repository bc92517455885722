#include "recipes/experience_at_start.h"

#include <fmt/format.h>

#include <cerrno>

#include "base/errors.h"
#include "command/command.h"
#include "command/start.h"
#include "config/resolved_recipe.h"
#include "rl/dqn/dqn_settings.h"
#include "rl/replay/experience.h"

namespace tandem {

namespace fs = std::filesystem;

void begin_with_experience(RecipeInfo& info) {
  info.before_train = take_experience;
  info.before_resume = [](ResolvedRecipe& recipe, const fs::path& run_dir) {
    keep_experience_settings(recipe, run_dir);
    find_first_weights(recipe, run_dir);
  };
}

void take_experience(const Command& command, ResolvedRecipe& recipe) {
  auto* const settings = dynamic_cast<DqnSettings*>(recipe.settings.get());
  if (!settings || settings->experience.files.empty()) return;
  const auto shape = settings->history_shape();
  if (!shape) return settings->check();  // says so
  std::vector<fs::path> files = experience_files(settings->experience.files);
  std::vector<std::string> names;
  for (fs::path& file : files) names.push_back((file = fs::absolute(file).lexically_normal()).string());
  if (recipe.resolver->strength("experience.split") < 2) {  // older runs keep theirs: their recipe.toml has none
    settings->experience.split = "episodes";
    recipe.resolver->note_source("experience.split", "the program at the start");
  }
  try {
    const Experience read =
        Experience::read(files, *shape, settings->history_agent(),
                         {settings->experience.holdout, split_named(settings->experience.split)}, "");
    for (size_t i = 0; i < files.size(); ++i)
      if (const HistoryRead& of = read.read_of()[i]; of.bad > 0)
        command.output.warn(fmt::format("{}: left out: {}", names[i], of.complaint()));
    const int64_t held = read.held_out_rows(), learned = read.rows() - held;
    const std::string agent =
        shape->agents.empty() ? "the agent" : shape->agents[static_cast<size_t>(settings->history_agent())];
    if (learned == 0)
      throw ConfigError(fmt::format("{} leaves nothing to learn from", names.front()),
                        fmt::format("{} of its {} transitions of {} are kept apart", held, read.rows(), agent),
                        "give more, or set a smaller experience.holdout");
    if (read.shape().actions < 2)
      throw ConfigError(fmt::format("{} has one action only", names.front()),
                        "every transition has action 0, so that there is nothing to choose",
                        "record other actions too, or say how many there are: --set experience.actions=4");
    command.output.say(fmt::format("experience: {} transitions of {} in {} episodes; {} in {} episodes are kept apart",
                                   read.rows(), agent, read.episodes(), held, read.held_out_episodes()));
    const int64_t room = settings->history_rings() * settings->shards * settings->rows();
    if (settings->shards > 0 && learned > room)
      command.output.warn(
          fmt::format("the replay has room for {} of them: the newest are kept; raise capacity for all", room));
    settings->experience.files = fmt::format("{}", fmt::join(names, ","));
    settings->experience.digest = read.digest();
    settings->take_history_sizes(read.shape().states, read.shape().actions);
    recipe.resolver->note_source("experience.digest", "the files at the start");
  } catch (const IoError& error) {
    const int number = error.error_number();
    if (number != ENOENT && number != EACCES && number != EISDIR && number != ENOTDIR) throw;
    throw ConfigError(error.what(), error.why(), error.todo());
  }
}

void keep_experience_settings(const ResolvedRecipe& recipe, const fs::path& run_dir) {
  const auto manifest = newest_manifest(run_dir / "checkpoints");
  if (!manifest) return;
  for (const KeyInfo& key : recipe.resolver->keys()) {
    const bool kept =
        key.name == "experience.split" || key.name == "experience.state_size" || key.name == "experience.actions";
    if (!kept || manifest->settings.contains(key.name) || recipe.resolver->strength(key.name) < 2) continue;
    throw ConfigError(
        fmt::format("{} can't be set when a run goes on", key.name),
        "it decides the weights, and this run's checkpoint, of an earlier version, does not tell what it was",
        "leave it out: recipe.toml of the run has it");
  }
}

void find_first_weights(ResolvedRecipe& recipe, const fs::path& run_dir) {
  auto* const settings = dynamic_cast<DqnSettings*>(recipe.settings.get());
  const fs::path here = fs::absolute(run_dir) / kFirstWeights;
  if (settings && !settings->from.empty() && fs::exists(here)) settings->from = here.string();
}

}  // namespace tandem
