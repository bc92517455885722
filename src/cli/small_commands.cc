// cli/small_commands.cc -- `tandem recipes` and `tandem version`.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "checkpoint/manifest.h"
#include "cli/commands.h"

namespace tandem {
namespace {

std::string compiler() {
#if defined(__clang__)
  return fmt::format("clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return fmt::format("g++ {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

}  // namespace

int run_recipes(const Command& command) {
  if (command.output.json()) {
    nlohmann::json recipes = nlohmann::json::array();
    for (const RecipeInfo& recipe : command.context.recipes)
      recipes.push_back({{"name", recipe.name}, {"summary", recipe.summary}});
    command.output.object({{"recipes", recipes}});
    return 0;
  }
  size_t width = 0;
  for (const RecipeInfo& recipe : command.context.recipes) width = std::max(width, recipe.name.size());
  for (const RecipeInfo& recipe : command.context.recipes)
    command.output.data(fmt::format("{:<{}}   {}\n", recipe.name, width, recipe.summary));
  return 0;
}

int run_version(const Command& command) {
  const CliContext& context = command.context;
  if (command.output.json()) {
    command.output.object({{"program", context.program},
                           {"version", context.version},
                           {"checkpoint_format", kCheckpointFormat},
                           {"cuda", context.machine.cuda_build},
                           {"compiler", compiler()}});
  } else {
    command.output.data(fmt::format("{} {}\n", context.program, context.version));
    command.output.say(fmt::format("checkpoint format {}, CUDA {}, {}", kCheckpointFormat,
                                   context.machine.cuda_build ? "yes" : "no", compiler()));
  }
  return 0;
}

}  // namespace tandem
