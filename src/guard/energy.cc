#include "guard/energy.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <set>

namespace tandem {
namespace {

constexpr double kJoulesPerKwh = 3.6e6;
constexpr double kLongestGap = 120;  // power before and after a longer silence says nothing about the time between

std::optional<double> number_of(const nlohmann::json& from, const char* key) {
  if (!from.contains(key) || !from[key].is_number()) return std::nullopt;
  return from[key].get<double>();
}

void raise(std::optional<double>& most, std::optional<double> value) {
  if (value && (!most || *value > *most)) most = value;
}

std::optional<double> number_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  double value = 0;
  return file >> value ? std::optional(value) : std::nullopt;
}

}  // namespace

void EnergyMeter::add(const std::vector<GpuFacts>& facts, const std::vector<GpuReading>& gpus) {
  for (const GpuReading& now : gpus) {
    if (now.lost || (!now.energy_j && !now.power_w)) continue;
    const auto about =
        std::find_if(facts.begin(), facts.end(), [&](const GpuFacts& f) { return f.index == now.index; });
    const bool known = about != facts.end();
    const std::string key = known && about->uuid ? *about->uuid : fmt::format("gpu{}", now.index);
    UsedEnergy& used = used_[key];
    index_[key] = now.index;
    if (known && about->name) used.name = *about->name;
    raise(used.peak_w, now.power_w);
    if (now.temperature_c) raise(used.peak_c, *now.temperature_c);
    const auto before = last_.find(key);
    if (before != last_.end()) {
      const double seconds = now.time_s - before->second.time;
      const Last& last = before->second;
      if (seconds > 0) used.seconds += seconds;
      if (now.energy_j && last.energy_j && *now.energy_j >= *last.energy_j) {
        used.joules += *now.energy_j - *last.energy_j;
        used.source = "counter";
      } else if (now.power_w && last.power_w && seconds > 0 && seconds <= kLongestGap) {
        used.joules += seconds * (*now.power_w + *last.power_w) / 2;
        if (used.source.empty()) used.source = "power";
      }
    }
    last_[key] = {now.time_s, now.power_w, now.energy_j};
  }
}

void EnergyMeter::add_counter(const std::string& name, double time_s, double joules, double wraps_at) {
  UsedEnergy& used = used_[name];
  used.name = name;
  used.source = "rapl";
  const auto before = last_.find(name);
  if (before != last_.end()) {
    double more = joules - *before->second.energy_j;
    if (more < 0) more += wraps_at;
    used.joules += std::max(0.0, more);
    used.seconds += std::max(0.0, time_s - before->second.time);
  }
  last_[name] = {time_s, {}, joules};
}

void EnergyMeter::add_earlier(const nlohmann::json& earlier) {
  if (!earlier.is_object() || !earlier.contains("devices") || !earlier["devices"].is_array()) return;
  for (const nlohmann::json& one : earlier["devices"]) {
    if (!one.is_object() || !one.contains("id") || !one["id"].is_string()) continue;
    const auto joules = number_of(one, "joules"), seconds = number_of(one, "seconds");
    if (!joules || !seconds || !(*joules >= 0) || !(*seconds >= 0)) continue;
    UsedEnergy& used = used_[one["id"].get<std::string>()];
    used.joules += *joules;
    used.seconds += *seconds;
    if (one.contains("name") && one["name"].is_string()) used.name = one["name"];
    if (one.contains("source") && one["source"].is_string()) used.source = one["source"];
    raise(used.peak_w, number_of(one, "peak_w"));
    raise(used.peak_c, number_of(one, "peak_c"));
    if (const auto index = number_of(one, "index")) index_[one["id"]] = static_cast<int>(*index);
  }
}

double EnergyMeter::joules() const {
  double sum = 0;
  for (const auto& [key, used] : used_) sum += used.joules;
  return sum;
}

nlohmann::json EnergyMeter::json() const {
  nlohmann::json devices = nlohmann::json::array();
  double mean = 0, longest = 0;
  for (const auto& [key, used] : used_) {
    nlohmann::json one{{"id", key},
                       {"name", used.name},
                       {"source", used.source},
                       {"joules", used.joules},
                       {"kwh", used.joules / kJoulesPerKwh},
                       {"seconds", used.seconds}};
    if (index_.contains(key)) one["index"] = index_.at(key);
    if (used.seconds > 0) one["mean_w"] = used.joules / used.seconds, mean += used.joules / used.seconds;
    if (used.peak_w) one["peak_w"] = *used.peak_w;
    if (used.peak_c) one["peak_c"] = *used.peak_c;
    if (price_kwh_ > 0) one["cost"] = used.joules / kJoulesPerKwh * price_kwh_;
    longest = std::max(longest, used.seconds);
    devices.push_back(std::move(one));
  }
  nlohmann::json all{{"joules", joules()}, {"kwh", joules() / kJoulesPerKwh}, {"seconds", longest}};
  if (mean > 0) all["mean_w"] = mean;
  if (price_kwh_ > 0) {
    all["price_kwh"] = price_kwh_;
    all["currency"] = currency_;
    all["cost"] = joules() / kJoulesPerKwh * price_kwh_;
  }
  all["devices"] = std::move(devices);
  return all;
}

std::string EnergyMeter::text() const {
  const nlohmann::json all = json();
  if (used_.empty() || !(joules() > 0)) return "";
  std::string text = fmt::format("{:.4g} kWh", all["kwh"].get<double>());
  if (all.contains("mean_w")) text += fmt::format(", {:.0f} W on average", all["mean_w"].get<double>());
  if (all.contains("cost")) text += fmt::format(", {:.4g} {}", all["cost"].get<double>(), currency_);
  const bool processor =
      std::any_of(used_.begin(), used_.end(), [](const auto& u) { return u.second.source == "rapl"; });
  return text + (processor ? " (of the processor, whoever used it)" : "");
}

std::vector<RaplZone> rapl_zones(const std::filesystem::path& root) {
  std::vector<RaplZone> zones;
  std::error_code none;
  for (int i = 0; i < 16; ++i) {
    const auto dir = root / fmt::format("intel-rapl:{}", i);  // AMD's too
    if (!std::filesystem::exists(dir, none)) break;
    RaplZone zone{.name = fmt::format("package-{}", i), .file = dir / "energy_uj"};
    std::ifstream(dir / "name") >> zone.name;
    if (zone.name == "psys") continue;  // the whole board, with the packages in it
    zone.wraps_at_j = number_in(dir / "max_energy_range_uj").value_or(0) * 1e-6;
    if (read_rapl(zone)) zones.push_back(std::move(zone));
  }
  return zones;
}

std::optional<double> read_rapl(const RaplZone& zone) {
  const auto microjoules = number_in(zone.file);
  return microjoules ? std::optional(*microjoules * 1e-6) : std::nullopt;
}

}  // namespace tandem
