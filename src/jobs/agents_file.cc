#include "jobs/agents_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/sha256.h"
#include "telemetry/atomic_file.h"

namespace tandem {
namespace {

nlohmann::json number(double value) { return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(); }

// Several agents may share one.
std::string run_of(const SetJob& job) { return "agents/" + (job.dir.empty() ? job.name : job.dir.filename().string()); }

// A start with fewer agents (`resume --agents analysis`) forgets none of the others.
void keep_others(const std::filesystem::path& dir, nlohmann::json& file) {
  const auto before = read_agents_file(dir);
  if (!before || !before->contains("jobs") || !before->at("jobs").is_array()) return;
  nlohmann::json agents = file["agents"];
  for (const auto& job : before->at("jobs")) {
    if (!job.is_object() || !job.contains("agent") || !job["agent"].is_string()) continue;
    const std::string agent = job["agent"];
    if (agents.contains(agent) || !before->at("agents").contains(agent)) continue;
    file["agents"][agent] = before->at("agents").at(agent);
    file["jobs"].push_back(job);
  }
}

}  // namespace

size_t best_job(const std::vector<SetJob>& jobs, const std::vector<JobStatus>& status, const std::string& agent) {
  size_t best = jobs.size();
  const auto worth = [&](size_t j) {
    const bool done = status[j].state == JobStatus::State::kDone;
    return std::pair(done, done && std::isfinite(status[j].score) ? status[j].score : -HUGE_VAL);
  };
  for (size_t j = 0; j < jobs.size(); ++j)
    if (jobs[j].agent == agent && (best == jobs.size() || worth(j) > worth(best))) best = j;
  return best;
}

void write_agents_file(const std::filesystem::path& dir, const SetFacts& facts, const std::vector<SetJob>& jobs,
                       const std::vector<JobStatus>& status, const std::vector<Segment>& course) {
  nlohmann::json file = {{"schema", 1},
                         {"strategy", facts.strategy},
                         {"assignment", facts.assignment},
                         {"devices", facts.devices},
                         {"seconds", number(facts.seconds)},
                         {"forecast_seconds", number(facts.forecast_seconds)},
                         {"judged", facts.judged},
                         {"agents", nlohmann::json::object()},
                         {"jobs", nlohmann::json::array()},
                         {"course", nlohmann::json::array()}};
  for (size_t j = 0; j < jobs.size(); ++j) {
    const SetJob& job = jobs[j];
    const JobStatus& one = status[j];
    nlohmann::json& agent = file["agents"][job.agent];
    agent["runs"].push_back(run_of(job));
    agent["best"] = run_of(jobs[best_job(jobs, status, job.agent)]);
    file["jobs"].push_back({{"name", job.name},
                            {"agent", job.agent},
                            {"run", run_of(job)},
                            {"state", name_of(one.state)},
                            {"step", one.step},
                            {"steps", job.steps},
                            {"seconds", number(one.seconds)},
                            {"score", number(one.score)},
                            {"average_return", number(one.average_return)},
                            {"rule_score", number(job.rule_score)},
                            {"digest", one.digest},
                            {"kind", one.kind},
                            {"devices", one.devices},
                            {"restarts", one.restarts}});
  }
  keep_others(dir, file);
  for (const Segment& part : course)
    file["course"].push_back({{"device", part.device},
                              {"job", part.job},
                              {"begin", std::round(part.begin * 100) / 100},
                              {"end", std::round(part.end * 100) / 100}});
  write_file_atomically(dir / kAgentsFile, file.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n",
                        Durability::kProcessDeath);
}

std::optional<nlohmann::json> read_agents_file(const std::filesystem::path& dir) {
  const auto text = read_small_file(dir / kAgentsFile, 16 << 20);
  if (!text) return std::nullopt;
  auto file = nlohmann::json::parse(*text, nullptr, false);
  if (!file.is_object() || !file.contains("agents") || !file["agents"].is_object()) return std::nullopt;
  return file;
}

std::vector<SetRun> runs_of_set(const std::filesystem::path& dir) {
  std::vector<SetRun> runs;
  const auto file = read_agents_file(dir);
  if (!file) return runs;
  try {
    const auto add = [&](const std::string& agent, const std::string& run, const std::string& name) {
      const std::string best = file->at("agents").at(agent).at("best");
      runs.push_back({agent, name, dir / run, run == best});
    };
    const auto folder_of = [](const std::string& run) { return std::filesystem::path(run).filename().string(); };
    if (file->contains("jobs")) {
      for (const auto& job : file->at("jobs"))
        add(job.at("agent"), job.at("run"), job.value("name", folder_of(job.at("run"))));
    } else {  // of another writer: what the format promises is "agents"
      for (const auto& [agent, value] : file->at("agents").items())
        for (const auto& run : value.at("runs")) add(agent, run, folder_of(run));
    }
  } catch (const nlohmann::json::exception&) {
    runs.clear();
  }
  return runs;
}

std::string set_digest(std::vector<std::pair<std::string, std::string>> digests) {
  std::sort(digests.begin(), digests.end());
  Sha256 sum;
  for (const auto& [name, digest] : digests) {
    if (digest.empty()) return "";
    sum.update(fmt::format("{} {}\n", name, digest));
  }
  return digests.empty() ? "" : sum.hex();
}

}  // namespace tandem
