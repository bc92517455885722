// tests/fake_machine.h -- a machine of GPUs simulated from a script; libfake_nvml.so and libfake_cuda.so show it.
//
// FAKE_NVML_SCRIPT names a JSON file (docs/testing.md has all of it):
//   {"preset": "3060ti+2x3070",        or "gpus": [{"card": "RTX 3070", "load": 0.9, ...}, ...]
//    "clock": {"speed": 100},          or {"stepped": true}: seconds are read from SCRIPT.clock
//    "events": [{"at": 5, "gpu": 0, "xid": 79}, {"at": 9, "gpu": 1, "lost": true}], ...}
// SCRIPT.state is what outlives a process (limits and fans that were set, heat, energy, when time began); SCRIPT.log
// has a line for each command given; SCRIPT.load ("0 0.5", a line per GPU) overrides how busy a GPU is, while it runs.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace fake {

// What commands change; from (t, celsius, joules) on it follows the law alone.
struct State {
  double t = 0, celsius = 0, joules = 0;
  double power_limit_w = 0;
  int fan_percent = -1;  // -1: the driver's own
  double load = -1;      // -1: the script's
};

struct Mig {
  std::string uuid, name;
  uint64_t memory_bytes = 0;
  int gpu = 0;
};

struct Process {
  unsigned pid = 0;
  std::optional<uint64_t> memory_bytes;
  std::string name;
};

struct FakeGpu {
  std::string name, uuid, bus_id;
  uint64_t memory_bytes = 0, used_bytes = 0;
  int cores = 0, cc_major = 0, cc_minor = 0, bus_width = 0, memory_mhz = 0, sm_mhz = 0;
  double power_default_w = 0, power_min_w = 0, power_max_w = 0, idle_w = 0;
  int slowdown_c = 0, shutdown_c = 0, fans = 0;
  int pcie_gen = 0, pcie_width = 0, pcie_gen_max = 0, pcie_width_max = 0, numa = -1;
  int nvlinks = 0, nvlink_mbps = 0;  // links to each peer, or to switches
  bool nvswitch = false;
  int nvlink_to = -1;  // -1: all links to the next GPU of a pair
  bool ecc = false, persistence = true, peer = true;
  uint64_t ecc_corrected = 0, ecc_uncorrected = 0;
  double ambient_c = 25, hot_c = 75, tau_s = 30, start_c = -1000;  // hot: at full load and the default limit
  double load = 0;
  std::vector<std::pair<double, double>> temperature;  // (t, celsius), instead of the law
  std::vector<Mig> mig;
  bool mig_on = false;
  std::vector<Process> processes;
  double pcie_rx_mb = 0, pcie_tx_mb = 0;
};

struct Event {
  double at = 0, until = -1;
  int gpu = 0;
  nlohmann::json what;
};

class Machine {
 public:
  explicit Machine(const std::string& script);

  double now();
  double celsius(int gpu, double t);
  double watts(int gpu, double t);
  double joules(int gpu, double t);
  double load(int gpu, double t);
  int fan_percent(int gpu, double t);
  bool fan_set_by_hand(int gpu);
  double power_limit(int gpu);
  unsigned long long throttle_bits(int gpu, double t);
  int sm_clock(int gpu, double t);
  bool lost(int gpu, double t) const;
  // The number that an event has set by now, or the GPU's own.
  double value(int gpu, double t, const char* key, double otherwise) const;

  void set_power_limit(int gpu, double watts);
  void set_fan(int gpu, int percent);
  // What a function answers by script instead of its work: "refuse": {"nvmlDeviceGetFanSpeed_v2": 3}.
  std::optional<int> refusal(const std::string& function, int gpu);

  std::vector<FakeGpu> fakes;
  std::vector<Event> events;  // by time
  std::string driver_version, nvml_version;
  int cuda_version = 0, init_code = 0, cuda_init_code = 0;
  bool power_permission = true, fan_permission = true;
  bool stepped = false;
  double speed = 1;

 private:
  bool take_state();
  void read_state();
  void write_state();
  void read_load();
  template <class Change>
  void change(int gpu, const char* what, double value, Change apply);
  State advanced(int gpu, const State& from, double t) const;
  double watts_of(int gpu, const State& state, double t) const;
  double target(int gpu, const State& state, double t) const;
  double load_of(int gpu, const State& state, double t) const;

  std::string script_;
  nlohmann::json refusals_;
  std::vector<State> states_;
  double began_ = 0;
  struct stat state_stamp_ {
  }, load_stamp_{};
  std::recursive_mutex mutex_;
};

// The machine of FAKE_NVML_SCRIPT; null with a line on stderr where there is none.
Machine* machine();

}  // namespace fake
