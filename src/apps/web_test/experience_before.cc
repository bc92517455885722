#include "apps/web_test/experience_before.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/errors.h"
#include "rl/replay/experience.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr int kMostRuns = 400;  // a year of days

// The run that `run` replaced; empty: it is the first.
fs::path run_before(const fs::path& run) {
  std::ifstream in(run / "gate.json");
  const auto gate = nlohmann::json::parse(in, nullptr, false);
  return gate.is_object() && gate.contains("old") && gate["old"].is_string() ? gate["old"].get<std::string>() : "";
}

void add_experience(ExperienceBefore& out, const DqnSettings& settings, double holdout) {
  const double share = std::min(holdout, settings.experience.holdout);
  if (share == 0) return;
  try {
    if (split_named(settings.experience.split) != Split::kEpisodes)
      throw ConfigError(settings.experience.files, "parts of its episodes were learned from", "");
    const Experience read =
        Experience::read(experience_files(settings.experience.files), settings.history_shape().value(),
                         settings.history_agent(), {share, Split::kEpisodes}, settings.experience.digest);
    LoggedEpisodes held_out = held_out_episodes(read);
    if (out.held_out.rows() == 0)
      out.held_out = std::move(held_out);
    else
      out.held_out.append(held_out);
  } catch (const Error&) {
    out.absent.push_back(settings.experience.files);
  }
}

}  // namespace

ExperienceBefore experience_before(const fs::path& newest, double holdout, const SettingsOfRun& settings_of) {
  ExperienceBefore out;
  std::set<std::string> digests;  // a file that was learned from on two days counts once
  fs::path run = newest;
  for (int i = 0; i < kMostRuns && !run.empty() && fs::exists(run / "recipe.toml"); ++i, run = run_before(run)) {
    const DqnSettings& settings = settings_of(run);
    if (settings.experience.files.empty() || !digests.insert(settings.experience.digest).second) continue;
    add_experience(out, settings, holdout);
  }
  return out;
}

}  // namespace tandem
