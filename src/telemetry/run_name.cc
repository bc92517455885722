#include "telemetry/run_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "telemetry/atomic_file.h"
#include "telemetry/resolved_recipe.h"
#include "telemetry/run_summary.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> names_in(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

bool of_a_set(const fs::path& dir) {
  std::error_code none;
  return dir.parent_path().filename() == "agents" && fs::exists(dir.parent_path().parent_path() / "agents.json", none);
}

}  // namespace

std::string run_name(const fs::path& run_dir) {
  std::error_code error;
  fs::path dir = fs::absolute(run_dir, error).lexically_normal();
  if (!dir.has_filename()) dir = dir.parent_path();
  std::string recipe, agent;
  for (const ResolvedSetting& s : read_resolved_recipe(read_small_file(dir / "recipe.toml", 1 << 20).value_or(""))) {
    if (s.key == "agent") agent = s.value;
    if (s.key == "recipe") recipe = s.value;
  }
  if (recipe.empty())
    if (const auto run = read_run_json(dir); run.contains("recipe") && run["recipe"].is_string())
      recipe = run["recipe"];
  const std::vector<std::string> agents = names_in(agent);
  if (agent == "all") return "all agents";
  if (agents.size() == 2) return fmt::format("{}, {}", agents[0], agents[1]);
  if (agents.size() > 2) return fmt::format("{} and {} more", agents.front(), agents.size() - 1);
  if (of_a_set(dir)) return dir.filename().string();
  return agents.empty() ? recipe : agents.front();
}

}  // namespace tandem
