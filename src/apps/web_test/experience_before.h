// apps/web_test/experience_before.h -- what an agent learned from before: the experience of the run in use and of those
// that it replaced, one after the other. gate.json of a run names the run before, and lists what all runs before it
// learned from, so that they may be removed.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "rl/dqn/dqn_settings.h"
#include "rl/held_out.h"

namespace tandem {

struct ExperienceBefore {
  std::vector<ExperienceSettings> sources;  // each once, the newest first
  LoggedEpisodes held_out;                  // of all files that can still be read, each episode once
  LearnedEpisodes learned;                  // of the same files
  std::vector<std::string> absent;          // files that are gone or changed, or whose episodes were not kept whole
  std::string lost;                         // a run that is gone before its gate.json could be read; empty: none
};

// Settings of a run folder. Throws Error if there are none.
using SettingsOfRun = std::function<const DqnSettings&(const std::filesystem::path& run)>;

// `newest`: the run in use; `shape` and `agent` as Experience::read takes them. No more than `holdout` of each is held
// out: an episode of these is not in what another training with that share learned from, whichever files it had.
ExperienceBefore experience_before(const std::filesystem::path& newest, double holdout, const HistoryShape& shape,
                                   int32_t agent, const SettingsOfRun& settings_of);

// For gate.json: what a run with these settings and all before it learned from.
nlohmann::json learned_json(const ExperienceSettings& own, const std::vector<ExperienceSettings>& before);

}  // namespace tandem
