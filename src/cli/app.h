// cli/app.h -- the tree of commands and flags, as CLI11 holds it. Parser, help and completion are all made from it.
#pragma once

#include <CLI/App.hpp>
#include <memory>

#include "command/arguments.h"

namespace tandem {

// The flags of the tree write into `arguments`, which must outlive it. A command's footer holds its commands to copy.
std::unique_ptr<CLI::App> make_app(const CliContext& context, Arguments& arguments);

// The command that the words name, as deep as they go: {"runs", "list"}; the root for none.
const CLI::App* find_command(const CLI::App& root, const std::vector<std::string>& words);

}  // namespace tandem
