#include "runs/agent_runs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/errors.h"
#include "base/file_system.h"
#include "base/plain_file.h"
#include "base/printable.h"
#include "config/spelling.h"
#include "telemetry/atomic_file.h"
#include "telemetry/resolved_recipe.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr size_t kLargest = 4 << 20;

[[noreturn]] void damaged(const fs::path& file, const std::string& why) {
  throw CheckpointError(fmt::format("{} can't be used", file.string()), why,
                        "put back a copy of the file, or name the run of one agent itself");
}

// {} where there is no such file.
Json agents_in(const fs::path& file) {
  const auto text = read_small_file(file, kLargest);
  if (!text) return Json::object();
  const Json whole = Json::parse(*text, nullptr, false);
  if (!whole.is_object() || !whole.contains("agents") || !whole["agents"].is_object())
    damaged(file, "it is not JSON with an object \"agents\"");
  return whole;
}

fs::path path_in(const Json& value, const fs::path& file) {
  if (!value.is_string() || value.get_ref<const std::string&>().empty()) damaged(file, "the name of a run is no text");
  return (file.parent_path() / value.get<std::string>()).lexically_normal();
}

// Several where they learned in one job; one without a name where the recipe has none.
std::vector<std::string> agents_of_recipe(const fs::path& run) {
  std::string named;
  for (const ResolvedSetting& s : read_resolved_recipe(read_small_file(run / "recipe.toml", 1 << 20).value_or("")))
    if (s.key == "agent") named = s.value;
  if (named == "all") named = "requirements,generation,execution,observation,analysis,evolution";
  std::vector<std::string> names;
  for (size_t begin = 0; begin <= named.size();) {
    const size_t end = std::min(named.find(',', begin), named.size());
    names.push_back(named.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

AgentRuns members_of(const fs::path& folder) {
  const fs::path file = folder / "agents.json";
  const Json whole = agents_in(file);
  AgentRuns out;
  if (whole.empty()) {
    if (!fs::exists(folder / "recipe.toml"))
      throw ConfigError(fmt::format("{} holds no trained agent", folder.string()),
                        "there is neither an agents.json nor a recipe.toml in it",
                        "see `tandem runs list` for the runs there are");
    const fs::path self = folder.lexically_normal();
    for (const std::string& agent : agents_of_recipe(folder)) out.agents.push_back({agent, {self}, self, self});
    return out;
  }
  if (whole.contains("strategy") && whole["strategy"].is_string()) out.strategy = whole["strategy"];
  for (const auto& [name, entry] : whole["agents"].items()) {
    AgentRun agent{name, {}, {}, {}};
    if (!entry.is_object() || !entry.contains("runs") || !entry["runs"].is_array() || entry["runs"].empty())
      damaged(file, fmt::format("\"{}\" has no list \"runs\"", name));
    for (const Json& run : entry["runs"]) agent.runs.push_back(path_in(run, file));
    agent.best = entry.contains("best") ? path_in(entry["best"], file) : agent.runs.front();
    if (std::find(agent.runs.begin(), agent.runs.end(), agent.best) == agent.runs.end())
      damaged(file, fmt::format("the best run of \"{}\" is none of its runs", name));
    agent.first = agent.best;
    out.agents.push_back(std::move(agent));
  }
  if (out.agents.empty()) damaged(file, "it names no agent");
  return out;
}

// JSON is UTF-8, and a path may be none: then its bytes are written beside its name.
Json entry_of(const std::string& run, const std::string& replaced) {
  Json entry = {{"run", run}, {"replaced", replaced}, {"since", utc_stamp()}};
  if (is_utf8(run)) return entry;
  entry["run_bytes"] = Json::array();
  for (const char c : run) entry["run_bytes"].push_back(static_cast<unsigned char>(c));
  return entry;
}

class Locked {
 public:
  explicit Locked(const fs::path& file) : fd_(open_plain_file(file, O_RDWR)) {
    if (flock(fd_, LOCK_EX) != 0)
      throw IoError(fmt::format("can't lock {}", file.string()), errno, "give the folder write permission");
  }
  ~Locked() { close(fd_); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  int fd_;
};

}  // namespace

fs::path run_of_entry(const Json& entry, const fs::path& file) {
  if (!entry.contains("run_bytes") || !entry["run_bytes"].is_array()) return path_in(entry["run"], file);
  std::string bytes;
  for (const Json& byte : entry["run_bytes"]) {
    const int value = byte.is_number_integer() ? byte.get<int>() : 0;
    if (value < 1 || value > 255) damaged(file, "\"run_bytes\" is no list of bytes");
    bytes += static_cast<char>(value);
  }
  return path_in(Json(std::move(bytes)), file);
}

std::vector<std::string> AgentRuns::names() const {
  std::vector<std::string> names;
  for (const AgentRun& agent : agents) names.push_back(agent.agent);
  return names;
}

AgentRuns agent_runs_of(const fs::path& folder) {
  AgentRuns out = members_of(folder);
  const fs::path file = folder / "current.json";
  const Json whole = agents_in(file);
  if (whole.empty()) return out;
  for (AgentRun& agent : out.agents) {
    if (!whole["agents"].contains(agent.agent)) continue;
    const Json& entry = whole["agents"][agent.agent];
    if (!entry.is_object() || !entry.contains("run")) damaged(file, fmt::format("\"{}\" has no \"run\"", agent.agent));
    const fs::path run = run_of_entry(entry, file);
    if (!fs::is_directory(run))
      damaged(file, fmt::format("{}, which it names for {}, is not there", run.string(), agent.agent));
    std::replace(agent.runs.begin(), agent.runs.end(), agent.best, run);
    agent.best = run;
  }
  return out;
}

const AgentRun& find_agent(const AgentRuns& runs, const std::string& name) {
  if (name.empty() && runs.agents.size() == 1) return runs.agents.front();
  for (const AgentRun& agent : runs.agents)
    if (agent.agent == name && !name.empty()) return agent;
  const std::vector<std::string> names = runs.names();
  if (name.empty())
    throw ConfigError("which agent?", fmt::format("the run has {}", fmt::join(names, ", ")),
                      fmt::format("name one with --agent, as in `--agent {}`", names.front()));
  const std::string near = nearest_word(name, names);
  throw ConfigError(fmt::format("the run has no agent '{}'", printable(name)),
                    names == std::vector<std::string>{""} ? "its recipe names no agent"
                                                          : fmt::format("it has {}", fmt::join(names, ", ")),
                    near.empty() ? "name one of them, or leave --agent out" : fmt::format("did you mean `{}`?", near));
}

void make_current(const fs::path& folder, const std::string& agent, const fs::path& run) {
  const Locked lock(folder / "current.lock");
  const fs::path file = folder / "current.json";
  const AgentRuns before = agent_runs_of(folder);
  Json whole = agents_in(file);
  whole["schema"] = 1;
  const auto relative = [&](const fs::path& to) {
    return fs::absolute(to).lexically_normal().lexically_relative(fs::absolute(folder).lexically_normal()).string();
  };
  for (const AgentRun& old : before.agents)
    if (old.agent == agent) whole["agents"][agent] = entry_of(relative(run), relative(old.best));
  replace_file(FileSystem::real(), file, whole.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace tandem
