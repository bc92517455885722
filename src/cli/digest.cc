// cli/digest.cc -- `tandem digest`: SHA-256 of the weights in name order, and the kind that made them.
#include "checkpoint/digest.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "cli/commands.h"
#include "cli/weights.h"
#include "command/sources.h"
#include "jobs/agents_file.h"
#include "runs/run_folder.h"
#include "telemetry/run_lock_state.h"

namespace tandem {
namespace {

// Of a set of runs: each run's, and one over all of them.
int digest_of_set(const Command& command, const RunFolder& folder, const std::vector<SetRun>& runs) {
  std::vector<std::pair<std::string, std::string>> digests;
  nlohmann::json agents = nlohmann::json::object();
  std::string kind;
  std::optional<Weights> read;
  std::filesystem::path read_from;
  for (const SetRun& run : runs) {
    if (read_from != run.dir) read = find_weights(command, run.dir.string(), command.arguments.step);
    read_from = run.dir;  // of several agents that learned side by side, read once
    const Weights& weights = *read;
    const SafetensorsFile own = weights.model.under(run.agent + ".");
    const std::string digest = weights_digest((own.tensors().empty() ? weights.model : own).tensors());
    digests.emplace_back(run.name, digest);
    kind = weights.kind;
    agents[run.name] = {{"digest", digest},
                        {"agent", run.agent},
                        {"best", run.best},
                        {"kind", weights.kind},
                        {"path", weights.path.string()},
                        {"step", weights.step ? nlohmann::json(*weights.step) : nlohmann::json()}};
    if (!command.output.json())
      command.output.path(
          fmt::format("{}  {}{}", digest, weights.path.string(), own.tensors().empty() ? "" : " " + run.agent));
  }
  const std::string all = set_digest(digests);
  if (command.output.json()) {
    command.output.object(
        {{"digest", all}, {"kind", kind}, {"run", folder.id()}, {"recipe", folder.recipe()}, {"agents", agents}});
    return 0;
  }
  command.output.path(fmt::format("{}  {}", all, folder.dir().string()));
  if (!kind.empty()) command.output.say(fmt::format("kind {}", kind));
  return 0;
}

// The set of runs that a word means, if it means one.
std::optional<RunFolder> set_named(const Command& command, const std::string& word) {
  std::error_code none;
  const std::filesystem::path path = word;
  if (std::filesystem::is_regular_file(path, none) || std::filesystem::exists(path / "manifest.json", none))
    return std::nullopt;
  const RunFolder run = RunFolder::find(runs_root(command.arguments), word);
  return std::filesystem::exists(run.dir() / kAgentsFile, none) ? std::optional(run) : std::nullopt;
}

// Somebody trains in the run's folder.
bool goes_on(const Weights& weights) {
  if (weights.run_id.empty() || !weights.step) return false;
  return run_lock_state(weights.path.parent_path().parent_path()) == RunLockState::kHeld;
}

}  // namespace

int run_digest(const Command& command) {
  const bool of_all = command.arguments.agent.empty();
  if (const auto set = of_all ? set_named(command, command.subject("last")) : std::nullopt)
    if (const auto runs = runs_of_set(set->dir()); !runs.empty()) return digest_of_set(command, *set, runs);
  const Weights weights = find_weights(command, command.subject("last"), command.arguments.step);
  const std::string digest = weights_digest(weights.model.tensors());
  if (command.output.json()) {
    command.output.object({{"digest", digest},
                           {"kind", weights.kind},
                           {"path", weights.path.string()},
                           {"run", weights.run_id},
                           {"recipe", weights.recipe},
                           {"step", weights.step ? nlohmann::json(*weights.step) : nlohmann::json()},
                           {"refused", weights.refused}});
  } else {
    command.output.path(fmt::format("{}  {}", digest, weights.path.string()));
    if (!weights.kind.empty()) command.output.say(fmt::format("kind {}", weights.kind));
    if (goes_on(weights))
      command.output.say(
          fmt::format("of its checkpoint of step {}: {} is still training", *weights.step, weights.run_id));
  }
  return 0;
}

}  // namespace tandem
