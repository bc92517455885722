// guard/energy.h -- what a run has used: joules per GPU, and what they cost.
//
// From the GPU's own energy counter where it has one, else from its power, integrated over time; where there is no
// GPU, from the processor's counters (RAPL) if they may be read. What earlier starts of the run used is added: the sum
// stands in energy.json of the run's folder, which is rewritten while the run goes on, so a kill costs seconds of it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "hardware/gpu.h"

namespace tandem {

struct UsedEnergy {
  std::string name;    // "NVIDIA H200", "package-0"
  std::string source;  // "counter", "power" (integrated), "rapl"
  double joules = 0, seconds = 0;
  std::optional<double> peak_w, peak_c;
};

class EnergyMeter {
 public:
  EnergyMeter(double price_kwh, std::string currency) : price_kwh_(price_kwh), currency_(std::move(currency)) {}

  void add(const std::vector<GpuFacts>& facts, const std::vector<GpuReading>& gpus);
  // A counter of the processor, which starts again at 0 after `wraps_at`.
  void add_counter(const std::string& name, double time_s, double joules, double wraps_at);
  void add_earlier(const nlohmann::json& energy_json);  // of earlier starts; anything that is no such object is nothing

  bool any() const { return !used_.empty(); }
  double joules() const;
  // {"kwh", "joules", "seconds", "mean_w", "price_kwh", "currency", "cost", "devices": [...]}; what is not known is
  // absent.
  nlohmann::json json() const;
  std::string text() const;  // "1.234 kWh, 312 W on average, 0.37 USD"; "" if nothing was measured

 private:
  struct Last {
    double time = 0;
    std::optional<double> power_w, energy_j;
  };
  double price_kwh_;
  std::string currency_;
  std::map<std::string, UsedEnergy> used_;  // by uuid, or by the counter's name
  std::map<std::string, int> index_;
  std::map<std::string, Last> last_;
};

// The processor's energy counters; empty where there are none or they may not be read.
struct RaplZone {
  std::string name;
  std::filesystem::path file;
  double wraps_at_j = 0;
};
std::vector<RaplZone> rapl_zones(const std::filesystem::path& root = "/sys/class/powercap");
std::optional<double> read_rapl(const RaplZone& zone);  // joules

}  // namespace tandem
