#include "fake_machine.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace fake {
namespace {

using nlohmann::json;

double boot_seconds() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) + now.tv_nsec * 1e-9;
}

struct Model {
  const char* name;
  double gb;
  int cores, cc_major, cc_minor, bus_width, memory_mhz, sm_mhz;
  double power, power_min, power_max, idle;
  int slowdown, shutdown, fans, pcie_gen, nvlinks, nvlink_mbps;
  bool nvswitch, ecc;
};

constexpr Model kModels[] = {
    {"NVIDIA GeForce RTX 3060 Ti", 8, 4864, 8, 6, 256, 7001, 2100, 200, 100, 220, 12, 95, 98, 2, 4, 0, 0, false, false},
    {"NVIDIA GeForce RTX 3070", 8, 5888, 8, 6, 256, 7001, 2100, 220, 100, 240, 13, 95, 98, 2, 4, 0, 0, false, false},
    {"NVIDIA GeForce RTX 4090",
     24,
     16384,
     8,
     9,
     384,
     10501,
     3105,
     450,
     150,
     600,
     20,
     97,
     100,
     3,
     4,
     0,
     0,
     false,
     false},
    {"NVIDIA RTX 6000 Ada Generation",
     48,
     18176,
     8,
     9,
     384,
     10001,
     3105,
     300,
     100,
     300,
     22,
     97,
     100,
     1,
     4,
     0,
     0,
     false,
     true},
    {"NVIDIA GeForce RTX 2080 Ti",
     11,
     4352,
     7,
     5,
     352,
     7000,
     2100,
     250,
     100,
     280,
     15,
     91,
     94,
     2,
     3,
     2,
     25781,
     false,
     false},
    {"NVIDIA H100 80GB HBM3",
     80,
     16896,
     9,
     0,
     5120,
     2619,
     1980,
     700,
     200,
     700,
     70,
     87,
     92,
     0,
     5,
     18,
     26562,
     true,
     true},
    {"NVIDIA H200", 141, 16896, 9, 0, 6144, 3201, 1980, 700, 200, 700, 75, 87, 92, 0, 5, 18, 26562, true, true},
    {"NVIDIA B200", 180, 18944, 10, 0, 8192, 3996, 1965, 1000, 200, 1000, 140, 89, 94, 0, 5, 18, 53125, true, true},
};

const std::map<std::string, std::vector<const char*>> kPresets = {
    {"3060ti+2x3070", {"3060 Ti", "3070", "3070"}},
    {"6000ada+4090", {"6000 Ada", "4090"}},
    {"4x2080ti", {"2080 Ti", "2080 Ti", "2080 Ti", "2080 Ti"}},
    {"4xh100", {"H100", "H100", "H100", "H100"}},
    {"8xh100", {"H100", "H100", "H100", "H100", "H100", "H100", "H100", "H100"}},
    {"3xb200", {"B200", "B200", "B200"}},
    {"1xh200", {"H200"}},
    {"none", {}},
};

FakeGpu model(const std::string& word, int index) {
  for (const Model& m : kModels) {
    if (std::string(m.name).find(word) == std::string::npos) continue;
    FakeGpu fake;
    fake.name = m.name;
    char text[64];
    std::snprintf(text, sizeof text, "GPU-%08x-fa4e-4d1a-8000-%012x", 0x7a9de000 + index, 0x51ab + index);
    fake.uuid = text;
    std::snprintf(text, sizeof text, "00000000:%02X:00.0", 0x17 + 0x10 * index);
    fake.bus_id = text;
    fake.memory_bytes = static_cast<uint64_t>(m.gb * (1ull << 30));
    fake.used_bytes = 300ull << 20;
    fake.cores = m.cores, fake.cc_major = m.cc_major, fake.cc_minor = m.cc_minor;
    fake.bus_width = m.bus_width, fake.memory_mhz = m.memory_mhz, fake.sm_mhz = m.sm_mhz;
    fake.power_default_w = m.power, fake.power_min_w = m.power_min, fake.power_max_w = m.power_max,
    fake.idle_w = m.idle;
    fake.slowdown_c = m.slowdown, fake.shutdown_c = m.shutdown, fake.fans = m.fans;
    fake.pcie_gen = fake.pcie_gen_max = m.pcie_gen;
    fake.pcie_width = fake.pcie_width_max = 16;
    fake.nvlinks = m.nvlinks, fake.nvlink_mbps = m.nvlink_mbps, fake.nvswitch = m.nvswitch, fake.ecc = m.ecc;
    fake.peer = m.nvlinks > 0;
    fake.numa = 0;
    return fake;
  }
  std::fprintf(stderr, "fake machine: there is no model '%s'\n", word.c_str());
  std::abort();
}

template <class T>
void take(const json& from, const char* key, T& to) {
  if (from.contains(key)) to = from.at(key).get<T>();
}

void read_gpu(const json& from, FakeGpu& fake) {
  take(from, "name", fake.name), take(from, "uuid", fake.uuid), take(from, "bus_id", fake.bus_id);
  if (from.contains("memory_gb"))
    fake.memory_bytes = static_cast<uint64_t>(from["memory_gb"].get<double>() * (1ull << 30));
  if (from.contains("used_gb")) fake.used_bytes = static_cast<uint64_t>(from["used_gb"].get<double>() * (1ull << 30));
  take(from, "cores", fake.cores), take(from, "fans", fake.fans), take(from, "numa", fake.numa);
  take(from, "pcie_gen", fake.pcie_gen), take(from, "pcie_width", fake.pcie_width);
  take(from, "power_default_w", fake.power_default_w), take(from, "power_min_w", fake.power_min_w);
  take(from, "power_max_w", fake.power_max_w), take(from, "idle_w", fake.idle_w);
  take(from, "slowdown_c", fake.slowdown_c), take(from, "shutdown_c", fake.shutdown_c);
  take(from, "nvlinks", fake.nvlinks), take(from, "nvlink_to", fake.nvlink_to), take(from, "peer", fake.peer);
  take(from, "ecc", fake.ecc), take(from, "persistence", fake.persistence);
  take(from, "ecc_corrected", fake.ecc_corrected), take(from, "ecc_uncorrected", fake.ecc_uncorrected);
  take(from, "ambient_c", fake.ambient_c), take(from, "hot_c", fake.hot_c), take(from, "tau_s", fake.tau_s);
  take(from, "start_c", fake.start_c), take(from, "load", fake.load), take(from, "temperature", fake.temperature);
  take(from, "pcie_rx_mb", fake.pcie_rx_mb), take(from, "pcie_tx_mb", fake.pcie_tx_mb);
  take(from, "mig_on", fake.mig_on);
  for (const json& part : from.value("mig", json::array())) {
    fake.mig_on = true;
    char text[64];
    std::snprintf(text, sizeof text, "MIG-%08zx-fa4e-4d1a-8000-0000000000ff", 0x51ab00 + fake.mig.size());
    fake.mig.push_back({part.value("uuid", std::string(text)), part.value("name", fake.name + " MIG 1g.10gb"),
                        static_cast<uint64_t>(part.value("memory_gb", 10.0) * (1ull << 30)), 0});
  }
  for (const json& one : from.value("processes", json::array())) {
    Process process{one.value("pid", 4242u), {}, one.value("name", "")};
    if (one.contains("memory_mb")) process.memory_bytes = one["memory_mb"].get<uint64_t>() << 20;
    fake.processes.push_back(process);
  }
}

bool same(const struct stat& a, const struct stat& b) {
  return a.st_ino == b.st_ino && a.st_size == b.st_size && a.st_mtim.tv_sec == b.st_mtim.tv_sec &&
         a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

// One process changes the state at a time.
class Lock {
 public:
  explicit Lock(const std::string& path) : fd_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    flock(fd_, LOCK_EX);
  }
  ~Lock() { close(fd_); }

 private:
  int fd_;
};

}  // namespace

Machine::Machine(const std::string& script) : script_(script) {
  std::ifstream file(script);
  const json all = json::parse(file);
  std::vector<json> gpus;
  for (const char* word : kPresets.at(all.value("preset", "none"))) gpus.push_back({{"card", word}});
  if (all.contains("gpus")) {
    const std::vector<json> given = all["gpus"].get<std::vector<json>>();
    for (size_t i = 0; i < given.size(); ++i) {
      if (i < gpus.size())
        gpus[i].update(given[i]);
      else
        gpus.push_back(given[i]);
    }
  }
  for (size_t i = 0; i < gpus.size(); ++i) {
    FakeGpu fake = model(gpus[i].value("card", "3070"), static_cast<int>(i));
    if (all.contains("every")) read_gpu(all["every"], fake);
    read_gpu(gpus[i], fake);
    for (Mig& part : fake.mig) part.gpu = static_cast<int>(i);
    fakes.push_back(std::move(fake));
  }
  for (const json& one : all.value("events", json::array()))
    events.push_back({one.value("at", 0.0), one.value("until", -1.0), one.value("gpu", 0), one});
  std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) { return a.at < b.at; });
  driver_version = all.value("driver", "580.65.06");
  nvml_version = all.value("nvml", "13.580.65.06");
  cuda_version = all.value("cuda", 13000);
  init_code = all.value("init", 0);
  cuda_init_code = all.value("cuda_init", fakes.empty() ? 100 : 0);
  power_permission = all.value("power_permission", true);
  fan_permission = all.value("fan_permission", true);
  refusals_ = all.value("refuse", json::object());
  const json clock = all.value("clock", json::object());
  speed = clock.value("speed", 1.0);
  stepped = clock.value("stepped", false);
  read_state();
}

bool Machine::take_state() {
  const std::string path = script_ + ".state";
  struct stat stamp {};
  if (stat(path.c_str(), &stamp) != 0) return false;
  if (same(stamp, state_stamp_)) return true;
  std::ifstream file(path);
  const json all = json::parse(file, nullptr, false);
  const json gpus = all.is_discarded() ? json() : all.value("gpus", json::array());
  if (gpus.size() != fakes.size()) return false;
  for (size_t i = 0; i < fakes.size(); ++i)
    if (gpus[i].value("name", fakes[i].name) != fakes[i].name) return false;
  began_ = all.value("began", 0.0);
  states_.clear();
  for (const json& one : gpus)
    states_.push_back({one["t"], one["celsius"], one["joules"], one["power_limit_w"], one["fan_percent"], one["load"]});
  state_stamp_ = stamp;
  return true;
}

// A state of another machine (a script that was changed) is replaced.
void Machine::read_state() {
  if (take_state()) return;
  const Lock lock(script_ + ".lock");
  if (take_state()) return;  // another process was first
  began_ = boot_seconds();
  states_.clear();
  for (const FakeGpu& fake : fakes) {
    State state;
    state.power_limit_w = fake.power_default_w;
    state.celsius = fake.start_c > -999 ? fake.start_c : fake.ambient_c + 10;
    states_.push_back(state);
  }
  write_state();
}

void Machine::write_state() {
  json all{{"began", began_}, {"gpus", json::array()}};
  for (size_t i = 0; i < states_.size(); ++i) {
    const State& s = states_[i];
    all["gpus"].push_back({{"name", fakes[i].name},
                           {"t", s.t},
                           {"celsius", s.celsius},
                           {"joules", s.joules},
                           {"power_limit_w", s.power_limit_w},
                           {"fan_percent", s.fan_percent},
                           {"load", s.load}});
  }
  const std::string path = script_ + ".state", beside = path + "." + std::to_string(getpid());
  std::ofstream(beside) << all.dump(1) << "\n";
  std::rename(beside.c_str(), path.c_str());
  stat(path.c_str(), &state_stamp_);
}

double Machine::now() {
  const std::lock_guard guard(mutex_);
  read_state();
  if (stepped) {
    double t = 0;
    std::ifstream(script_ + ".clock") >> t;
    return t;
  }
  return (boot_seconds() - began_) * speed;
}

// Loads that a test writes while it runs become part of the state when they are first seen.
void Machine::read_load() {
  struct stat stamp {};
  const std::string path = script_ + ".load";
  if (stat(path.c_str(), &stamp) != 0 || same(stamp, load_stamp_)) return;
  load_stamp_ = stamp;
  std::ifstream file(path);
  int gpu = 0;
  double load = 0;
  while (file >> gpu >> load) {
    if (gpu < 0 || gpu >= static_cast<int>(fakes.size())) continue;
    read_state();
    if (states_[gpu].load != load) change(gpu, "", load, [load](State& state) { state.load = load; });
  }
}

template <class Change>
void Machine::change(int gpu, const char* what, double value, Change apply) {
  const double t = now();
  const Lock lock(script_ + ".lock");
  read_state();
  states_[gpu] = advanced(gpu, states_[gpu], t);
  apply(states_[gpu]);
  write_state();
  if (!*what) return;
  char line[128];
  std::snprintf(line, sizeof line, "%.3f %s gpu=%d value=%g pid=%d\n", t, what, gpu, value, getpid());
  const int fd = open((script_ + ".log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd >= 0 && write(fd, line, std::string(line).size()) < 0) std::perror("fake machine");
  if (fd >= 0) close(fd);
}

void Machine::set_power_limit(int gpu, double watts) {
  const std::lock_guard guard(mutex_);
  change(gpu, "power_limit", watts, [watts](State& state) { state.power_limit_w = watts; });
}

void Machine::set_fan(int gpu, int percent) {
  const std::lock_guard guard(mutex_);
  change(gpu, "fan", percent, [percent](State& state) { state.fan_percent = percent; });
}

bool Machine::lost(int gpu, double t) const { return value(gpu, t, "lost", 0) != 0; }

double Machine::value(int gpu, double t, const char* key, double otherwise) const {
  for (const Event& event : events) {
    if (event.gpu != gpu || event.at > t || (event.until >= 0 && t >= event.until)) continue;
    const auto found = event.what.find(key);
    if (found == event.what.end()) continue;
    otherwise = found->is_boolean() ? static_cast<double>(found->get<bool>()) : found->get<double>();
  }
  return otherwise;
}

double Machine::load_of(int gpu, const State& state, double t) const {
  return state.load >= 0 ? state.load : value(gpu, t, "load", fakes[gpu].load);
}

double Machine::watts_of(int gpu, const State& state, double t) const {
  const FakeGpu& fake = fakes[gpu];
  return std::min(state.power_limit_w, fake.idle_w + load_of(gpu, state, t) * (fake.power_default_w - fake.idle_w));
}

// Heat goes with power; a fan above its usual half takes up to a third of it away, one below adds as much.
double Machine::target(int gpu, const State& state, double t) const {
  const FakeGpu& fake = fakes[gpu];
  const double hot = value(gpu, t, "hot_c", fake.hot_c), ambient = value(gpu, t, "ambient_c", fake.ambient_c);
  const double fan = state.fan_percent < 0 ? 1.0 : 1.0 - 0.35 * (state.fan_percent - 50) / 50.0;
  return ambient + (hot - ambient) * fan * watts_of(gpu, state, t) / fake.power_default_w;
}

// Between two events everything is constant, so heat follows one exponential.
State Machine::advanced(int gpu, const State& from, double t) const {
  State state = from;
  std::vector<double> breaks;
  for (const Event& event : events) {
    for (const double at : {event.at, event.until}) {
      if (event.gpu == gpu && at > state.t && at < t) breaks.push_back(at);
    }
  }
  std::sort(breaks.begin(), breaks.end());
  breaks.push_back(t);
  for (const double until : breaks) {
    const double span = std::max(0.0, until - state.t), middle = state.t + span / 2;
    const double goal = target(gpu, state, middle);
    state.celsius = goal + (state.celsius - goal) * std::exp(-span / fakes[gpu].tau_s);
    state.joules += watts_of(gpu, state, middle) * span;
    state.t = std::max(state.t, until);
  }
  return state;
}

double Machine::celsius(int gpu, double t) {
  const std::lock_guard guard(mutex_);
  const auto& points = fakes[gpu].temperature;
  if (!points.empty()) {
    if (t <= points.front().first) return points.front().second;
    for (size_t i = 1; i < points.size(); ++i) {
      const auto [t0, c0] = points[i - 1];
      const auto [t1, c1] = points[i];
      if (t <= t1) return c0 + (c1 - c0) * (t - t0) / (t1 - t0);
    }
    return points.back().second;
  }
  read_load();
  return advanced(gpu, states_[gpu], t).celsius;
}

double Machine::watts(int gpu, double t) {
  const std::lock_guard guard(mutex_);
  read_load();
  return watts_of(gpu, states_[gpu], t);
}

double Machine::joules(int gpu, double t) {
  const std::lock_guard guard(mutex_);
  read_load();
  return advanced(gpu, states_[gpu], t).joules;
}

double Machine::load(int gpu, double t) {
  const std::lock_guard guard(mutex_);
  read_load();
  return load_of(gpu, states_[gpu], t);
}

double Machine::power_limit(int gpu) {
  const std::lock_guard guard(mutex_);
  read_state();
  return states_[gpu].power_limit_w;
}

int Machine::fan_percent(int gpu, double t) {
  const std::lock_guard guard(mutex_);
  read_state();
  if (states_[gpu].fan_percent >= 0) return states_[gpu].fan_percent;
  return static_cast<int>(std::clamp(30 + (celsius(gpu, t) - 50) * 1.4, 30.0, 100.0));
}

bool Machine::fan_set_by_hand(int gpu) {
  const std::lock_guard guard(mutex_);
  read_state();
  return states_[gpu].fan_percent >= 0;
}

unsigned long long Machine::throttle_bits(int gpu, double t) {
  const std::lock_guard guard(mutex_);
  const FakeGpu& fake = fakes[gpu];
  unsigned long long bits = static_cast<unsigned long long>(value(gpu, t, "throttle", 0));
  const double heat = celsius(gpu, t), busy = load(gpu, t);
  if (busy <= 0) bits |= 0x1;
  if (fake.idle_w + busy * (fake.power_default_w - fake.idle_w) > states_[gpu].power_limit_w + 0.5) bits |= 0x4;
  if (heat >= fake.slowdown_c - 4) bits |= 0x20;
  if (heat >= fake.slowdown_c) bits |= 0x8 | 0x40;
  return bits;
}

int Machine::sm_clock(int gpu, double t) {
  const std::lock_guard guard(mutex_);
  const FakeGpu& fake = fakes[gpu];
  const unsigned long long bits = throttle_bits(gpu, t);
  if (bits & 0x1) return 210;
  double clock = fake.sm_mhz;
  if (bits & 0x4)
    clock *= std::pow(watts(gpu, t) / (fake.idle_w + load(gpu, t) * (fake.power_default_w - fake.idle_w)), 0.45);
  if (bits & 0x20) clock *= 0.85;
  if (bits & 0xC8) clock *= 0.5;
  return static_cast<int>(clock);
}

std::optional<int> Machine::refusal(const std::string& function, int gpu) {
  while (gpu >= 0 && value(gpu, now(), "hang", 0) != 0) poll(nullptr, 0, 10);  // as a driver does that waits for a GPU
  const auto found = refusals_.find(function);
  if (found == refusals_.end()) return std::nullopt;
  if (found->is_number()) return found->get<int>();
  const auto here = found->find(std::to_string(gpu));  // {"0": 3}: GPU 0 alone
  if (here == found->end()) return std::nullopt;
  return here->get<int>();
}

Machine* machine() {
  static std::mutex mutex;
  static std::unique_ptr<Machine> one;
  static std::string played;
  const std::lock_guard lock(mutex);
  const char* script = std::getenv("FAKE_NVML_SCRIPT");
  if (!script || !*script) {
    std::fprintf(stderr, "fake machine: FAKE_NVML_SCRIPT names no script\n");
    return nullptr;
  }
  if (!one || played != script) {
    try {
      one = std::make_unique<Machine>(script);
      played = script;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "fake machine: %s: %s\n", script, error.what());
      one.reset();
    }
  }
  return one.get();
}

}  // namespace fake
