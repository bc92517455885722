// cli/cli_main.h -- the whole command line as one function, for `tandem` and for a user's own program.
//
// It links no libtorch: `train` and `resume` resolve and check everything here, then start `worker` as
// `<worker> work <run_dir> [--resume] [--json] [--quiet] [--no-color] [--max-seconds n]` and return its exit code.
#pragma once

#include "command/context.h"

namespace tandem {

// Returns the exit code (base/errors.h). Data goes to stdout, talk to stderr; never throws.
int cli_main(int argc, char** argv, const CliContext& context);

}  // namespace tandem
