// cli/parse_arguments.h -- the command line as a struct. Parsing is pure: it reads argv and nothing else.
#pragma once

#include "command/arguments.h"

namespace tandem {

// Throws ConfigError that suggests the nearest command or flag. With --help or --version anywhere, nothing else is
// checked. Both - and _ are accepted in the names of flags.
Arguments parse_arguments(int argc, const char* const* argv, const CliContext& context);

}  // namespace tandem
