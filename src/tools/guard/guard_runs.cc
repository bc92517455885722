#include "tools/guard/guard_runs.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/plain_file.h"
#include "runs/index.h"
#include "telemetry/human.h"

namespace tandem {
namespace {

constexpr std::streamoff kTail = 256 << 10;
constexpr double kFreshSeconds = 60;  // a gpus.jsonl that is older belongs to nobody who runs now

// The last whole lines of a file.
std::vector<nlohmann::json> tail_of(const std::filesystem::path& path, std::streamoff bytes) {
  std::vector<nlohmann::json> lines;
  std::ifstream file = read_plain_file(path, std::ios::ate | std::ios::binary);
  if (!file) return lines;
  const std::streamoff size = file.tellg(), from = std::max<std::streamoff>(0, size - bytes);
  file.seekg(from);
  std::string line;
  if (from > 0) std::getline(file, line);  // torn
  while (std::getline(file, line)) {
    auto parsed = nlohmann::json::parse(line, nullptr, false);
    if (parsed.is_object()) lines.push_back(std::move(parsed));
  }
  return lines;
}

std::optional<double> number_of(const nlohmann::json& from, const char* key) {
  return from.contains(key) && from[key].is_number() ? std::optional(from[key].get<double>()) : std::nullopt;
}

}  // namespace

std::optional<double> recent_rate(const std::filesystem::path& metrics_jsonl, double window_s) {
  std::optional<double> first_time, first_step, last_time, last_step;
  const double now = unix_now();
  for (const auto& line : tail_of(metrics_jsonl, kTail)) {
    const auto time = number_of(line, "t"), step = number_of(line, "step");
    if (!time || !step || *time < now - window_s) continue;
    if (!first_time) first_time = time, first_step = step;
    last_time = time, last_step = step;
  }
  if (!first_time || *last_time <= *first_time) return std::nullopt;
  return (*last_step - *first_step) / (*last_time - *first_time);
}

std::optional<double> newest_step(const std::filesystem::path& metrics_jsonl) {
  const auto lines = tail_of(metrics_jsonl, 16 << 10);
  return lines.empty() ? std::nullopt : number_of(lines.back(), "step");
}

std::vector<std::filesystem::path> runs_on(const std::filesystem::path& root, int gpu) {
  std::vector<std::filesystem::path> dirs;
  std::error_code none;
  if (!std::filesystem::is_directory(root, none)) return dirs;
  RunIndex index(root);
  for (const RunRow& row : index.list({.recipe = "", .status = "running", .limit = 0})) {
    const auto lines = tail_of(row.dir / "gpus.jsonl", 16 << 10);
    if (lines.empty() || number_of(lines.back(), "t").value_or(0) < unix_now() - kFreshSeconds) continue;
    bool uses = gpu < 0;
    for (const auto& one : lines.back().value("gpus", nlohmann::json::array()))
      uses = uses || (one.is_object() && number_of(one, "index") == gpu);
    if (uses) dirs.push_back(row.dir);
  }
  return dirs;
}

}  // namespace tandem
