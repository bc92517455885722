#include "cli/weights.h"

#include <fmt/format.h>

#include "base/shell_word.h"
#include "checkpoint/store.h"
#include "checkpoint/verify.h"
#include "command/sources.h"
#include "jobs/agents_file.h"
#include "runs/agent_runs.h"
#include "runs/run_folder.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

Weights of_checkpoint(LoadedCheckpoint loaded) {
  Weights weights{std::move(loaded.model), loaded.dir,           loaded.manifest.run_id,   loaded.manifest.recipe,
                  loaded.manifest.kind,    loaded.manifest.step, std::move(loaded.refused)};
  return weights;
}

Weights of_file(const fs::path& path) {
  Weights weights{SafetensorsFile::read(FileSystem::real(), path), path, "", "", "", std::nullopt, {}};
  const auto& metadata = weights.model.metadata();
  if (const auto kind = metadata.find("kind"); kind != metadata.end()) weights.kind = kind->second;
  if (const auto recipe = metadata.find("recipe"); recipe != metadata.end()) weights.recipe = recipe->second;
  return weights;
}

Weights of_run(const RunFolder& run, std::optional<int64_t> step) {
  auto store = CheckpointStore::reader(FileSystem::real(), run.checkpoints());
  if (step) {
    const fs::path dir = run.checkpoints() / fmt::format("step-{:08}", *step);
    if (!fs::is_directory(dir)) {
      throw ConfigError(fmt::format("{} has no checkpoint of step {}", run.id(), *step),
                        store.steps().empty() ? "it has none at all"
                                              : fmt::format("it has those of steps {}", fmt::join(store.steps(), ", ")),
                        "choose one of them, or leave --step out for the newest");
    }
    return of_checkpoint(store.load(dir));
  }
  auto newest = store.load_newest();
  if (!newest) {
    throw ConfigError(fmt::format("{} has no checkpoint", run.id()),
                      "the run ended, or was stopped, before its first save",
                      fmt::format("go on with it first: `tandem resume {}`", shell_word(run.id())));
  }
  return of_checkpoint(std::move(*newest));
}

Weights find_all_weights(const Command& command, const std::string& word, std::optional<int64_t> step) {
  fs::path path = word;
  if (!path.has_filename() && path.has_parent_path()) path = path.parent_path();  // "step-00000200/"
  std::error_code error;
  if (fs::is_regular_file(path, error)) return of_file(path);
  if (fs::is_regular_file(path / kManifestFile, error)) {
    return of_checkpoint(CheckpointStore::reader(FileSystem::real(), path.parent_path()).load(path));
  }
  RunFolder run = RunFolder::find(runs_root(command.arguments), word);
  if (!command.arguments.agent.empty()) {
    const AgentRuns agents = agent_runs_of(run.dir());
    run = RunFolder::open(find_agent(agents, command.arguments.agent).best);
  } else if (const auto runs = runs_of_set(run.dir()); runs.size() == 1) {
    run = RunFolder::find(runs_root(command.arguments), runs.front().dir.string());
  } else if (!runs.empty()) {
    std::vector<std::string> names;
    for (const SetRun& one : runs) names.push_back(one.name);
    throw ConfigError(fmt::format("{} holds {} models", run.id(), runs.size()),
                      fmt::format("they are: {}", fmt::join(names, ", ")),
                      fmt::format("choose one with --agent {}, or name its folder: {}", runs.front().agent,
                                  runs.front().dir.string()));
  }
  Weights weights = of_run(run, step);
  for (const std::string& reason : weights.refused) command.output.warn(fmt::format("passed over {}", reason));
  return weights;
}

}  // namespace

Weights find_weights(const Command& command, const std::string& word, std::optional<int64_t> step) {
  Weights weights = find_all_weights(command, word, step);
  const std::string& agent = command.arguments.agent;
  if (agent.empty()) return weights;
  // Of several agents side by side, the weights under this one's name.
  if (const SafetensorsFile own = weights.model.under(agent + "."); !own.tensors().empty()) weights.model = own;
  return weights;
}

}  // namespace tandem
