#include "engine/last_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
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

void schedule_in_steps(const Recipe& recipe, RecipeSettings& settings, Resolver& resolver) {
  ScheduleSettings& s = settings.schedule;
  const auto turn = [&](const char* epochs_key, double epochs, const char* steps_key, int64_t& steps) {
    if (epochs == 0) return;
    const int64_t in_one = recipe.steps_in("epochs", 1);
    if (in_one == 0)
      throw ConfigError(fmt::format("{} is {}, but this recipe has no epochs", epochs_key, epochs),
                        "its data does not come from a set of samples", fmt::format("set {} instead", steps_key));
    steps = std::max<int64_t>(1, std::llround(epochs * static_cast<double>(in_one)));
    resolver.note_source(steps_key, epochs_key);
  };
  turn("schedule.warmup_epochs", s.warmup_epochs, "schedule.warmup_steps", s.warmup_steps);
  turn("schedule.restart_epochs", s.restart_epochs, "schedule.restart_steps", s.restart_steps);
  if (s.total_steps > 0 && s.warmup_steps >= s.total_steps)
    throw ConfigError(
        fmt::format("the warm-up of {} steps is as long as the schedule of {}", s.warmup_steps, s.total_steps),
        "nothing would be left of the schedule itself", "shorten schedule.warmup_epochs");
}

void end_schedule_at(int64_t last_step, RecipeSettings& settings, Resolver& resolver) {
  if (settings.schedule.kind != "cosine" || settings.schedule.total_steps != 0) return;
  if (last_step == 0)
    throw ConfigError("schedule.kind is cosine, but nothing says after how many steps it ends",
                      "the run is limited by time alone, and the rate must not depend on the machine's speed",
                      "set schedule.total_steps");
  settings.schedule.total_steps = last_step;
  resolver.note_source("schedule.total_steps", "the run's steps");
}

}  // namespace tandem
