// cli/commands.h -- one function per command, each in the file of its name. They return the exit code or throw Error.
#pragma once

#include <filesystem>
#include <optional>

#include "command/command.h"

namespace tandem {

int run_train(const Command& command);
int run_resume(const Command& command);
// Goes on with the run in `run_dir`; `checkpoint` is a folder of its checkpoints/, or nothing for the newest whole one.
int resume_run(const Command& command, const std::filesystem::path& run_dir,
               const std::optional<std::filesystem::path>& checkpoint);
int run_join(const Command& command);
int run_leave(const Command& command);
int run_runs(const Command& command);
int run_digest(const Command& command);
int run_export(const Command& command);
int run_report(const Command& command);
int run_explain(const Command& command);
int run_monitor(const Command& command);
int run_config_show(const Command& command);
int run_recipes(const Command& command);
int run_version(const Command& command);

}  // namespace tandem
