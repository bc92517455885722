#include "apps/web_test/experience_before.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/errors.h"
#include "checkpoint/safetensors.h"
#include "recipes/experience_at_start.h"
#include "rl/replay/experience.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int kMostRuns = 400;  // a year of days

std::string text_of(const Json& from, const char* key) {
  return from.is_object() && from.contains(key) && from[key].is_string() ? from[key].get<std::string>() : "";
}

Json gate_of(const fs::path& run) {
  std::ifstream in(run / "gate.json");
  return Json::parse(in, nullptr, false);
}

// The run that `run` replaced; of one that was never judged the run whose weights it began with. Empty: it is the
// first.
fs::path run_before(const fs::path& run, const Json& gate) {
  if (std::string old = text_of(gate, "old"); !old.empty()) return old;
  if (!fs::exists(run / kFirstWeights)) return {};
  try {
    const auto weights = SafetensorsFile::read(FileSystem::real(), run / kFirstWeights);
    const auto known = weights.metadata().find("run");
    return known == weights.metadata().end() ? fs::path() : fs::path(known->second);
  } catch (const Error&) {
    return {};
  }
}

bool readable(const Json& one) {
  return !text_of(one, "files").empty() && one.contains("holdout") && one["holdout"].is_number();
}

class Line {
 public:
  explicit Line(ExperienceBefore& out) : out_(out) {}
  void add(const ExperienceSettings& source) {
    if (!source.files.empty() && digests_.insert(source.digest).second) out_.sources.push_back(source);
  }

 private:
  ExperienceBefore& out_;
  std::set<std::string> digests_;  // a file that was learned from on two days counts once
};

void walk(ExperienceBefore& out, fs::path run, const SettingsOfRun& settings_of) {
  Line line(out);
  for (int i = 0; !run.empty(); ++i) {
    if (i == kMostRuns || !fs::exists(run / "recipe.toml")) {
      out.lost = run.string();
      return;
    }
    line.add(settings_of(run).experience);
    const Json gate = gate_of(run);
    if (gate.is_object() && gate.contains("learned") && gate["learned"].is_array() &&
        std::ranges::all_of(gate["learned"], readable)) {
      for (const Json& one : gate["learned"])
        line.add({.files = one["files"],
                  .digest = text_of(one, "digest"),
                  .holdout = one["holdout"],
                  .split = text_of(one, "split")});
      return;
    }
    run = run_before(run, gate);
  }
}

void read_source(ExperienceBefore& out, const ExperienceSettings& source, double holdout, const HistoryShape& shape,
                 int32_t agent) {
  const bool whole = split_named(source.split) == Split::kEpisodes;
  try {
    const auto files = experience_files(source.files);
    const Split split = split_named(source.split);
    out.learned.add(Experience::read(files, shape, agent, {source.holdout, split}, source.digest));
    const double share = std::min(holdout, source.holdout);
    if (share > 0 && whole)
      out.held_out.append(
          held_out_episodes(Experience::read(files, shape, agent, {share, Split::kEpisodes}, source.digest)));
  } catch (const Error&) {
    out.absent.push_back(source.files);
    return;
  }
  if (!whole) out.absent.push_back(source.files);
}

}  // namespace

ExperienceBefore experience_before(const fs::path& newest, double holdout, const HistoryShape& shape, int32_t agent,
                                   const SettingsOfRun& settings_of) {
  ExperienceBefore out;
  out.held_out.state_size = shape.states;
  out.held_out.action_count = shape.actions;
  walk(out, newest, settings_of);
  for (const ExperienceSettings& source : out.sources) read_source(out, source, holdout, shape, agent);
  out.learned.leave_out_of(out.held_out);
  return out;
}

Json learned_json(const ExperienceSettings& own, const std::vector<ExperienceSettings>& before) {
  Json out = Json::array();
  const auto add = [&](const ExperienceSettings& one) {
    out.push_back({{"files", one.files}, {"digest", one.digest}, {"holdout", one.holdout}, {"split", one.split}});
  };
  if (!own.files.empty()) add(own);
  for (const ExperienceSettings& one : before)
    if (one.digest != own.digest) add(one);
  return out;
}

}  // namespace tandem
