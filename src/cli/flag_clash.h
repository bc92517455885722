// cli/flag_clash.h -- a recipe's flag that has the name of one that a command has already, in words for its author.
#pragma once

#include <string>

#include "command/context.h"

namespace tandem {

// Which flag of which recipe it is; empty if none is found.
std::string flag_clash(const CliContext& context);

}  // namespace tandem
