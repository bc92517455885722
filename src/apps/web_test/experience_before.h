// apps/web_test/experience_before.h -- what an agent learned from before: the experience of the run in use and of those
// that it replaced, one after the other (gate.json names the run before).
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "rl/dqn/dqn_settings.h"
#include "rl/off_policy.h"

namespace tandem {

struct ExperienceBefore {
  LoggedEpisodes held_out;          // of all files that can still be read
  std::vector<std::string> absent;  // files that are gone or changed, or whose episodes were not kept whole
};

// Settings of a run folder. Throws Error if there are none.
using SettingsOfRun = std::function<const DqnSettings&(const std::filesystem::path& run)>;

// `newest`: the run in use. No more than `holdout` of each is held out: an episode of these is not in what another
// training with that share learned from, whichever files it had.
ExperienceBefore experience_before(const std::filesystem::path& newest, double holdout,
                                   const SettingsOfRun& settings_of);

}  // namespace tandem
