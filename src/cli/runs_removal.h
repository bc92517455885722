// cli/runs_removal.h -- `tandem runs rm` and `tandem runs prune`.
//
// They list what would go, with its size, and ask; --yes answers, --dry-run only lists. A run in use is never removed:
// its lock (launch/run_lock.h), and those of the runs of a set, are held while it goes. Links are never followed.
#pragma once

#include <CLI/App.hpp>
#include <functional>
#include <string>
#include <vector>

#include "command/command.h"
#include "config/recipe_list.h"

namespace tandem {

int run_runs_rm(const Command& command);
int run_runs_prune(const Command& command);

// Their flags. `make` makes a command below `runs` from its name, a summary and commands to copy.
using MakeCommand = std::function<CLI::App*(const std::string&, const std::string&, std::vector<CommandExample>)>;
void add_removal_commands(Arguments& arguments, const MakeCommand& make);

}  // namespace tandem
