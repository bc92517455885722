#include "engine/last_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/errors.h"

namespace tandem {

int64_t last_step_of(const RecipeSettings& settings, const Resolver& resolver, const Recipe& recipe) {
  int64_t last = 0;
  auto limit = [&](int64_t steps) { last = last == 0 ? steps : std::min(last, steps); };
  bool asked = false;
  for (const auto& [unit, count] : {std::pair<const char*, int64_t>{"epochs", settings.epochs},
                                    {"episodes", settings.episodes},
                                    {"iterations", settings.iterations}}) {
    if (count == 0) continue;
    const int64_t steps = recipe.steps_in(unit, count);
    if (steps == 0)
      throw ConfigError(fmt::format("this recipe has no {}", unit), "its stop rule counts other things",
                        "use --steps, or --max-time");
    asked = asked || resolver.source(unit) != "default";
    limit(steps);
  }
  if (settings.steps > 0 && !(asked && resolver.source("steps") == "default")) limit(settings.steps);
  return last;
}

}  // namespace tandem
