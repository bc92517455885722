// cli/digest.cc -- `tandem digest`: SHA-256 of the weights in name order, and the kind that made them.
#include "checkpoint/digest.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/weights.h"

namespace tandem {

int run_digest(const Command& command) {
  const Weights weights = find_weights(command, command.subject("last"), command.arguments.step);
  const std::string digest = weights_digest(weights.model.tensors());
  if (command.output.json()) {
    command.output.object({{"digest", digest},
                           {"kind", weights.kind},
                           {"path", weights.path.string()},
                           {"run", weights.run_id},
                           {"recipe", weights.recipe},
                           {"step", weights.step ? nlohmann::json(*weights.step) : nlohmann::json()},
                           {"refused", weights.refused}});
  } else {
    command.output.data(fmt::format("{}  {}\n", digest, weights.path.string()));
    if (!weights.kind.empty()) command.output.say(fmt::format("kind {}", weights.kind));
  }
  return 0;
}

}  // namespace tandem
