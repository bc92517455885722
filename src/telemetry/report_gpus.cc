#include "telemetry/report_gpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>

#include "base/plain_file.h"
#include "telemetry/atomic_file.h"
#include "telemetry/human.h"

namespace tandem {
namespace {

constexpr size_t kMostGpus = 16, kMostLines = 20'000;

struct Mean {
  double sum = 0;
  int count = 0;
  void add(const nlohmann::json& from, const char* key) {
    if (from.contains(key) && from[key].is_number()) sum += from[key].get<double>(), ++count;
  }
  nlohmann::json json() const {
    return count > 0 ? nlohmann::json(std::round(sum / count * 10) / 10) : nlohmann::json();
  }
};

struct Curve {
  std::string name;
  std::map<size_t, Mean> power, temp, limit;  // by bucket
};

}  // namespace

nlohmann::json report_gpus(const std::filesystem::path& run_dir, size_t most_points) {
  std::vector<nlohmann::json> lines;
  std::ifstream file = read_plain_file(run_dir / "gpus.jsonl");
  for (std::string line; lines.size() < kMostLines && std::getline(file, line);) {
    auto parsed = nlohmann::json::parse(line, nullptr, false);
    if (parsed.is_object() && parsed.contains("t") && parsed["t"].is_number() && parsed.contains("gpus") &&
        parsed["gpus"].is_array())
      lines.push_back(std::move(parsed));
  }
  nlohmann::json out = nlohmann::json::array();
  if (lines.size() < 2) return out;
  const double first = lines.front()["t"], last = lines.back()["t"];
  const double width = std::max(1e-3, (last - first) / static_cast<double>(std::max<size_t>(most_points, 2) - 1));
  std::map<int, Curve> curves;
  for (const nlohmann::json& line : lines) {
    const double at = (line["t"].get<double>() - first) / width;
    if (!(at >= 0) || at > static_cast<double>(most_points)) continue;  // the clock was set back
    const auto bucket = static_cast<size_t>(at);
    for (const nlohmann::json& gpu : line["gpus"]) {
      if (!gpu.is_object() || !gpu.contains("index") || !gpu["index"].is_number_integer()) continue;
      const int index = gpu["index"];
      if (!curves.contains(index) && curves.size() >= kMostGpus) continue;
      Curve& curve = curves[index];
      curve.name = fmt::format("GPU {}", index);
      curve.power[bucket].add(gpu, "power_w");
      curve.temp[bucket].add(gpu, "temp_c");
      curve.limit[bucket].add(gpu, "limit_w");
    }
  }
  for (const auto& [index, curve] : curves) {
    nlohmann::json x = nlohmann::json::array(), power = x, temp = x, limit = x;
    for (const auto& [bucket, mean] : curve.power) {
      x.push_back(std::round(static_cast<double>(bucket) * width * 10) / 10);
      power.push_back(mean.json());
      temp.push_back(curve.temp.at(bucket).json());
      limit.push_back(curve.limit.at(bucket).json());
    }
    out.push_back({{"name", curve.name}, {"x", x}, {"power", power}, {"temp", temp}, {"limit", limit}});
  }
  return out;
}

nlohmann::json report_energy(const std::filesystem::path& run_dir) {
  const auto whole =
      nlohmann::json::parse(read_small_file(run_dir / "energy.json", 1 << 20).value_or(""), nullptr, false);
  if (!whole.is_object()) return {};
  const auto shown = [](const nlohmann::json& from) {
    nlohmann::json out = nlohmann::json::object();
    for (const char* key : {"kwh", "mean_w", "cost", "peak_w", "peak_c", "index", "seconds", "price_kwh"})
      if (from.contains(key) && from[key].is_number()) out[key] = from[key];
    for (const char* key : {"name", "currency", "source"})
      if (from.contains(key) && from[key].is_string()) out[key] = fit(from[key].get<std::string>(), 60);
    return out;
  };
  nlohmann::json out = shown(whole);
  out["devices"] = nlohmann::json::array();
  if (whole.contains("devices") && whole["devices"].is_array())
    for (const nlohmann::json& one : whole["devices"])
      if (one.is_object() && out["devices"].size() < kMostGpus) out["devices"].push_back(shown(one));
  return out.contains("kwh") ? out : nlohmann::json();
}

nlohmann::json report_explain(const std::filesystem::path& run_dir) {
  const auto whole =
      nlohmann::json::parse(read_small_file(run_dir / "explain.json", 1 << 20).value_or(""), nullptr, false);
  if (!whole.is_object() || !whole.contains("shares") || !whole["shares"].is_object()) return {};
  const auto text = [](const nlohmann::json& from, const char* key, int width) {
    return from.contains(key) && from[key].is_string() ? fit(from[key].get<std::string>(), width) : std::string();
  };
  nlohmann::json out{{"verdict", text(whole, "verdict", 300)}};
  out["shares"] = nlohmann::json::array();
  for (const auto& [name, share] : whole["shares"].items())
    if (share.is_number() && out["shares"].size() < kMostGpus) out["shares"].push_back({fit(name, 40), share});
  out["findings"] = nlohmann::json::array();
  if (whole.contains("findings") && whole["findings"].is_array())
    for (const nlohmann::json& one : whole["findings"])
      if (one.is_object() && out["findings"].size() < kMostGpus)
        out["findings"].push_back({{"text", text(one, "text", 300)},
                                   {"why", text(one, "why", 300)},
                                   {"remedy", text(one, "remedy", 400)},
                                   {"command", text(one, "command", 300)}});
  return out;
}

}  // namespace tandem
