// runs/run_folder.h -- the folder of one run: where its files are, and how a run is named and found.
//
// runs/<recipe>-<UTC yyyymmdd-hhmmss>-<id6>/ is made with mkdir, which succeeds for one caller only, so two runs that
// start in the same second never share a folder. docs/run-folder.md lists the files.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "telemetry/run_summary.h"

namespace tandem {

class RunFolder {
 public:
  // Makes the folder, logs/, checkpoints/ and a run.json of status "created". With exact_dir that very folder is used:
  // it may exist if it is empty. Throws ConfigError if it can't be made or written, or is not empty.
  static RunFolder create(const std::filesystem::path& root, const std::string& recipe,
                          const std::optional<std::filesystem::path>& exact_dir = std::nullopt);
  // An existing run folder. Throws ConfigError if there is no run.json and no recipe.toml in it.
  static RunFolder open(const std::filesystem::path& dir);
  // By path, whole id, the six letters at its end, a prefix of either, or "last" (the newest by start). Throws
  // ConfigError that names what is there if none or several fit.
  static RunFolder find(const std::filesystem::path& root, const std::string& name);

  // A folder elsewhere (--run-dir) gets a link in `root` by its own name, by its id where that name is taken, so that
  // find(), the index and the monitor know it. Returns the link; empty where none is needed, or the root can't be
  // written: then the run is found by its path alone.
  std::filesystem::path link_into(const std::filesystem::path& root) const;

  const std::filesystem::path& dir() const { return dir_; }
  const std::string& id() const { return id_; }          // <recipe>-<UTC>-<id6>, also for an exact_dir
  const std::string& recipe() const { return recipe_; }  // empty if not known
  std::filesystem::path checkpoints() const { return dir_ / "checkpoints"; }
  std::filesystem::path logs() const { return dir_ / "logs"; }
  std::filesystem::path recipe_toml() const { return dir_ / "recipe.toml"; }
  std::filesystem::path env_json() const { return dir_ / "env.json"; }
  std::filesystem::path metrics_jsonl() const { return dir_ / "metrics.jsonl"; }
  std::filesystem::path training_stats_json() const { return dir_ / "training_stats.json"; }
  std::filesystem::path run_json() const { return dir_ / "run.json"; }

  void write_recipe(const std::string& resolved_toml) const;  // recipe.toml, atomic
  // env.json: this machine and process as runs/environment.h describes them, with the versions given. What an earlier
  // start of the run found is kept under "previous".
  void write_env(const nlohmann::json& versions) const;
  void write_status(const RunSummary& summary) const;  // run.json, atomic

 private:
  RunFolder(std::filesystem::path dir, std::string id, std::string recipe)
      : dir_(std::move(dir)), id_(std::move(id)), recipe_(std::move(recipe)) {}
  std::filesystem::path dir_;
  std::string id_, recipe_;
};

}  // namespace tandem
