// command/start.h -- what train and resume share: the plan in words, and the start of the run.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "command/command.h"
#include "command/sources.h"
#include "config/devices.h"
#include "launch/launcher.h"

namespace tandem {

// Devices parsed and counted against the shards; the recipe frozen (config/resolver.h) and checked. Throws ConfigError.
std::vector<DeviceSpec> settle(ResolvedRecipe& recipe, const Command& command);

// "24 shards x 8 = global batch 192" and "24 shards on 3 workers: 8 8 8 (cpu:0 cpu:1 cpu:2)".
std::string batch_line(const RecipeSettings& settings);
std::string plan_line(const RecipeSettings& settings, const std::vector<DeviceSpec>& devices);

// --dry-run: the resolved recipe on stdout, batch and plan on stderr; one object with --json.
void show_dry_run(const Command& command, const ResolvedRecipe& recipe, const std::vector<DeviceSpec>& devices);

// Throws Error before anything is made, if the worker's program is not there.
void check_worker_program(const CliContext& context);

// The manifest of a checkpoint folder. Throws Error.
Manifest manifest_in(const std::filesystem::path& checkpoint);
// The manifest of the newest checkpoint whose manifest is whole; nothing if the run never saved. Throws
// CheckpointError.
std::optional<Manifest> newest_manifest(const std::filesystem::path& checkpoints);

// Runs it to its end (launch/launcher.h) and returns the exit code.
int start_run(const Command& command, const ResolvedRecipe& recipe, const std::vector<DeviceSpec>& devices,
              const std::filesystem::path& run_dir, bool resume, const std::filesystem::path& checkpoint = {},
              const std::optional<RunForecast>& forecast = std::nullopt, double trial_seconds = 0);

}  // namespace tandem
