// cli/cli_main.h -- the whole command line as one function, for `tandem` and for a user's own program.
//
// It links no libtorch: `train` and `resume` resolve and check everything here, then start `worker` as
// `<worker> work <run_dir> [--resume] [--json] [--quiet] [--no-color] [--max-seconds n]` and return its exit code.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "config/devices.h"
#include "config/recipe_list.h"

namespace tandem {

class QFunction;
struct TrainedAgent;

struct CliContext {
  std::string program;              // "tandem": the name used in help and advice
  std::string version;              // "0.1.0"
  std::vector<RecipeInfo> recipes;  // the first one serves as the example in the help
  std::filesystem::path worker;     // the program that does the training
  Machine machine;                  // devices this build and machine offer; default: CPU only
  // An agent that answers from this process's GPU; a program without libtorch has none.
  std::function<std::shared_ptr<const QFunction>(const TrainedAgent&)> agent_on_gpu = {};
};

// Returns the exit code (base/errors.h). Data goes to stdout, talk to stderr; never throws.
int cli_main(int argc, char** argv, const CliContext& context);

}  // namespace tandem
