#include "guard/gpu_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "base/errors.h"
#include "base/plain_file.h"
#include "telemetry/atomic_file.h"

namespace tandem {
namespace {

double rounded(double value, double unit) { return std::round(value / unit) * unit; }

std::vector<std::string> lines_of(const std::filesystem::path& path) {
  std::ifstream file = read_plain_file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);)
    if (!line.empty()) lines.push_back(std::move(line));
  return lines;
}

double time_of(const std::string& line) {
  const auto parsed = nlohmann::json::parse(line, nullptr, false);
  return parsed.is_object() && parsed.contains("t") && parsed["t"].is_number() ? parsed["t"].get<double>() : 0;
}

}  // namespace

nlohmann::json reading_json(const GpuFacts& facts, const GpuReading& r) {
  nlohmann::json out{{"index", r.index}};
  if (facts.name) out["name"] = *facts.name;
  if (r.lost) out["lost"] = true;
  if (!r.trouble.empty()) out["trouble"] = r.trouble;
  const auto put = [&](const char* key, const auto& value) {
    if (value) out[key] = *value;
  };
  const auto put_watts = [&](const char* key, const std::optional<double>& value) {
    if (value) out[key] = rounded(*value, 0.1);
  };
  put("util", r.utilisation_percent);
  put("mem_util", r.memory_utilisation_percent);
  put("mem_used", r.memory_used_bytes);
  put("mem_total", facts.memory_bytes);
  put_watts("power_w", r.power_w);
  put_watts("limit_w", r.power_limit_w);
  if (r.energy_j) out["energy_j"] = std::round(*r.energy_j);
  put("temp_c", r.temperature_c);
  put("sm_mhz", r.sm_clock_mhz);
  put("sm_max_mhz", r.sm_clock_max_mhz);
  put("mem_mhz", r.memory_clock_mhz);
  put("fan", r.fan_percent);
  put("ecc_corrected", r.ecc_corrected);
  put("ecc_uncorrected", r.ecc_uncorrected);
  if (r.pcie_rx_bytes_per_s) out["pcie_rx"] = std::round(*r.pcie_rx_bytes_per_s);
  if (r.pcie_tx_bytes_per_s) out["pcie_tx"] = std::round(*r.pcie_tx_bytes_per_s);
  if (r.throttle) {
    out["throttle"] = nlohmann::json::array();
    for (const Throttle reason : *r.throttle) out["throttle"].push_back(throttle_name(reason));
  }
  return out;
}

GpuLog::GpuLog(std::filesystem::path path, size_t most_lines) : path_(std::move(path)), most_lines_(most_lines) {
  const std::vector<std::string> lines = lines_of(path_);
  lines_ = lines.size();
  if (lines_ < 2 || lines_ < most_lines_ / 2) return;  // never thinned
  std::vector<double> gaps;                            // the usual one: between two starts of a run there may be days
  for (size_t i = 1; i < lines_; ++i) gaps.push_back(time_of(lines[i]) - time_of(lines[i - 1]));
  std::nth_element(gaps.begin(), gaps.begin() + static_cast<long>(gaps.size() / 2), gaps.end());
  interval_s_ = std::max(1.0, std::round(gaps[gaps.size() / 2]));
  if (!(interval_s_ < 1e6)) interval_s_ = 1;
}

void GpuLog::add(double unix_s, double time, const std::vector<GpuFacts>& facts, const std::vector<GpuReading>& gpus,
                 const nlohmann::json& others) {
  if (time < next_) return;
  next_ = std::max(next_ + interval_s_, time + interval_s_ / 2);
  nlohmann::json line{{"t", rounded(unix_s, 0.001)}, {"gpus", nlohmann::json::array()}};
  for (const GpuReading& now : gpus) {
    const auto about =
        std::find_if(facts.begin(), facts.end(), [&](const GpuFacts& f) { return f.index == now.index; });
    line["gpus"].push_back(reading_json(about == facts.end() ? GpuFacts{} : *about, now));
  }
  if (!others.empty()) line["others"] = others;
  const std::string text = line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  int fd = -1;
  try {
    fd = open_plain_file(path_, O_WRONLY | O_APPEND, 0644);
  } catch (const Error&) {  // a figure less
    return;
  }
  const bool whole = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(fd);
  if (whole && ++lines_ >= most_lines_) thin();
}

void GpuLog::thin() {
  const std::vector<std::string> lines = lines_of(path_);
  std::string kept;
  size_t count = 0;
  for (size_t i = 0; i < lines.size(); i += 2, ++count) kept += lines[i] + "\n";
  try {
    write_file_atomically(path_, kept, Durability::kProcessDeath);
    lines_ = count;
    interval_s_ *= 2;
  } catch (const Error&) {
    lines_ = lines.size() / 2;  // tried again later
  }
}

}  // namespace tandem
