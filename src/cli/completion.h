// cli/completion.h -- completion scripts for bash, zsh and fish, made from the tree of commands.
#pragma once

#include <CLI/App.hpp>
#include <string>

#include "command/context.h"

namespace tandem {

// `shell` is bash, zsh or fish. Runs are completed by asking the program itself, which answers in milliseconds.
std::string completion_script(const CLI::App& root, const CliContext& context, const std::string& shell);

}  // namespace tandem
