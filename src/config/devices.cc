#include "config/devices.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/errors.h"
#include "config/gpus_and_driver.h"
#include "config/spelling.h"

namespace tandem {
namespace {

constexpr int kMostAutoWorkers = 8;  // more is asked for by name
constexpr int kMostWorkers = 1024;   // a slip such as cpu:40000 must not start to allocate

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

template <typename T>
bool parse_number(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

[[noreturn]] void refuse(std::string_view all, const std::string& reason, const std::string& todo) {
  throw ConfigError(fmt::format("devices \"{}\": {}", printable(all), reason),
                    "devices are named as auto, cpu, cpu:4, cpu:3@1,0.5,0.5 or cuda:0,cuda:2", todo);
}

DeviceSpec cuda_device(int index, const Machine& machine) {
  DeviceSpec device{.kind = DeviceSpec::Kind::kCuda, .index = index};
  if (index < static_cast<int>(machine.gpus.size())) device.gpu = machine.gpus[index];
  return device;
}

void add_cuda(std::vector<DeviceSpec>& devices, std::string_view all, std::string_view number, const Machine& machine) {
  if (!machine.cuda_build) {
    throw ConfigError(fmt::format("devices \"{}\": this build has no CUDA", printable(all)),
                      "tandem was built without a CUDA toolkit, so it can train on CPU workers only",
                      "use `--devices cpu`, or build on a machine with nvcc");
  }
  if (machine.cuda_devices == 0) {
    throw ConfigError(fmt::format("devices \"{}\": no CUDA device is visible", printable(all)),
                      "the driver reports none, or CUDA_VISIBLE_DEVICES hides them",
                      "use `--devices cpu`, or check `nvidia-smi`");
  }
  if (number == "all") {
    for (int i = 0; i < machine.cuda_devices; ++i) devices.push_back(cuda_device(i, machine));
    return;
  }
  int index = 0;
  if (!parse_number(number, index) || index < 0) {
    refuse(all, fmt::format("\"{}\" is no device number", printable(number)), "write cuda:0 for the first one");
  }
  if (index >= machine.cuda_devices) {
    throw ConfigError(fmt::format("devices \"{}\": no such device cuda:{}", printable(all), index),
                      fmt::format("this machine shows {} CUDA device{}, numbered from 0", machine.cuda_devices,
                                  machine.cuda_devices == 1 ? "" : "s"),
                      fmt::format("use cuda:0 to cuda:{}, or `--devices auto` for all", machine.cuda_devices - 1));
  }
  devices.push_back(cuda_device(index, machine));
}

void add_item(std::vector<DeviceSpec>& devices, std::string_view all, std::string_view item, const Machine& machine) {
  const size_t colon = item.find(':');
  const std::string_view kind = item.substr(0, colon);
  const std::string_view number = colon == std::string_view::npos ? std::string_view() : item.substr(colon + 1);
  if (int index = 0; kind.starts_with("cpu#") && colon == std::string_view::npos &&
                     parse_number(kind.substr(4), index) && index >= 0 && index < kMostWorkers) {
    devices.push_back({.index = index});  // one CPU worker of this number, as a set names those of its jobs
    return;
  }
  if (kind == "cpu") {
    int count = 1;
    if (colon != std::string_view::npos && (!parse_number(number, count) || count < 1 || count > kMostWorkers)) {
      refuse(all, fmt::format("\"{}\" is no number of CPU workers", printable(number)),
             fmt::format("write cpu:1 to cpu:{}", kMostWorkers));
    }
    int index = 0;
    for (const DeviceSpec& device : devices) index += device.kind == DeviceSpec::Kind::kCpu;
    for (int i = 0; i < count; ++i) devices.push_back({.index = index + i});
    return;
  }
  if (kind == "cuda" || kind == "gpu") {
    add_cuda(devices, all, colon == std::string_view::npos ? "0" : number, machine);
    return;
  }
  if (item.empty()) refuse(all, "a name is missing", "take out the extra comma");
  const std::vector<std::string> kinds = {"cpu", "cuda", "auto"};
  const std::string near = nearest_word(kind, kinds);
  refuse(
      all, fmt::format("\"{}\" is no device", printable(item)),
      near.empty() ? "use `--devices auto` for everything this machine has" : fmt::format("did you mean `{}`?", near));
}

void apply_speeds(std::vector<DeviceSpec>& devices, std::string_view all, std::string_view speeds_text) {
  const auto speeds = split(speeds_text, ',');
  if (speeds.size() != devices.size()) {
    refuse(all,
           fmt::format("{} speed{} for {} device{}", speeds.size(), speeds.size() == 1 ? "" : "s", devices.size(),
                       devices.size() == 1 ? "" : "s"),
           "give one speed for each device after '@'");
  }
  for (size_t i = 0; i < speeds.size(); ++i) {
    double speed = 0;
    const size_t slash = speeds[i].find('/');
    if (!parse_number(speeds[i].substr(0, slash), speed) || !(speed > 0 && speed <= 1)) {
      refuse(all, fmt::format("\"{}\" is no speed", printable(speeds[i])), "a speed is above 0 and at most 1");
    }
    devices[i].speed = speed;
    if (slash == std::string_view::npos) continue;
    if (!parse_number(speeds[i].substr(slash + 1), devices[i].core) || devices[i].core < 0 ||
        devices[i].core >= CPU_SETSIZE) {
      refuse(all, fmt::format("\"{}\" names no core", printable(speeds[i])), "write 0.5/3 for half of core 3");
    }
  }
}

// Each worker gets the first core that still has its share free. Left to itself the system lets a worker of 0.25 take
// turns with the one of 1, and every step waits for that one.
void share_cores(std::vector<DeviceSpec>& devices, const std::vector<int>& cores) {
  std::vector<double> taken(cores.size());
  std::vector<int> places;
  for (const DeviceSpec& device : devices) {
    size_t k = 0;
    while (k < cores.size() && taken[k] + device.speed > 1 + 1e-9) ++k;
    if (k == cores.size() || device.kind != DeviceSpec::Kind::kCpu) return;
    taken[k] += device.speed;
    places.push_back(cores[k]);
  }
  for (size_t i = 0; i < devices.size(); ++i) devices[i].core = places[i];
}

std::vector<int> real_cores_first(const cpu_set_t& set) {
  std::vector<int> first, second;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &set)) continue;
    std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu));
    int lowest = cpu;  // of the CPUs on the same real core: "0,64" or "0-1"
    file >> lowest;
    (lowest == cpu || !CPU_ISSET(lowest, &set) ? first : second).push_back(cpu);
  }
  // Another launcher begins with another core: several runs of slowed workers must not crowd the first ones.
  if (!first.empty())
    std::rotate(first.begin(), first.begin() + getpid() % static_cast<int>(first.size()), first.end());
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

}  // namespace

std::string DeviceSpec::name() const { return fmt::format("{}:{}", kind == Kind::kCpu ? "cpu" : "cuda", index); }

Machine this_machine() {
  Machine machine;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    machine.cpu_cores = std::max(1, CPU_COUNT(&set));
    machine.cores = real_cores_first(set);
  }
  std::error_code none;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", none).parent_path();
  for (const char* place : {"libtandem_cuda.so", "../lib/libtandem_cuda.so", "../bin/libtandem_cuda.so"})
    machine.cuda_build = machine.cuda_build || std::filesystem::exists(program / place, none);
  if (machine.cuda_build) machine.cuda_devices = Machine::kNotAsked;
  return machine;
}

namespace {

std::vector<DeviceSpec> listed_devices(std::string_view text, const Machine& machine, int64_t shards) {
  std::vector<DeviceSpec> devices;
  if (text.empty() || text == "auto") {
    for (int i = 0; i < machine.cuda_devices && machine.cuda_build; ++i) {
      devices.push_back(cuda_device(i, machine));
    }
    if (devices.empty()) {
      const int64_t workers = std::clamp<int64_t>(std::min<int64_t>(machine.cpu_cores, shards), 1, kMostAutoWorkers);
      for (int i = 0; i < workers; ++i) devices.push_back({.index = i});
    }
    return devices;
  }
  const size_t at = text.find('@');
  for (std::string_view item : split(text.substr(0, at), ',')) add_item(devices, text, item, machine);
  if (devices.size() > kMostWorkers) refuse(text, "too many workers", fmt::format("name at most {}", kMostWorkers));
  if (at != std::string_view::npos) {
    apply_speeds(devices, text, text.substr(at + 1));
    const bool named = std::any_of(devices.begin(), devices.end(), [](const DeviceSpec& d) { return d.core >= 0; });
    if (!named) share_cores(devices, machine.cores);
  }
  return devices;
}

}  // namespace

std::vector<DeviceSpec> parse_devices(std::string_view text, const Machine& given, int64_t shards) {
  Machine machine = given;
  DriverVersions driver;
  if (machine.cuda_devices == Machine::kNotAsked) {
    machine.cuda_devices = 0;
    const auto names = [&](const char* word) { return text.find(word) != std::string_view::npos; };
    if (!names("cpu") || names("cuda") || names("gpu")) {
      GpusAndDriver seen = gpus_and_driver();
      machine.gpus = visible_gpu_ids(seen.gpus, std::getenv("CUDA_VISIBLE_DEVICES"));
      machine.cuda_devices = static_cast<int>(machine.gpus.size());
      driver = std::move(seen.driver);
    }
  }
  std::vector<DeviceSpec> devices = listed_devices(text, machine, shards);
  const auto on_gpu = [](const DeviceSpec& device) { return device.kind == DeviceSpec::Kind::kCuda; };
  if (std::ranges::any_of(devices, on_gpu) && driver_is_old(driver)) throw OldDriverError(driver);
  return devices;
}

std::string devices_text(const std::vector<DeviceSpec>& devices) {
  std::vector<std::string> names, speeds;
  int cpus = 0;
  bool plain = true;
  for (const DeviceSpec& device : devices) {
    if (device.kind != DeviceSpec::Kind::kCpu)
      names.push_back(device.name());
    else  // by its number, where it is not the one that comes next
      names.push_back(device.index == cpus++ ? "cpu:1" : fmt::format("cpu#{}", device.index));
    speeds.push_back(device.core >= 0 ? fmt::format("{}/{}", device.speed, device.core)
                                      : fmt::format("{}", device.speed));
    plain = plain && device.speed == 1 && device.core < 0;
  }
  return fmt::format("{}{}{}", fmt::join(names, ","), plain ? "" : "@",
                     plain ? "" : fmt::format("{}", fmt::join(speeds, ",")));
}

DeviceSpec gpu_here(int index) {
  const GpusAndDriver seen = gpus_and_driver();
  const std::vector<GpuId> gpus = visible_gpu_ids(seen.gpus, std::getenv("CUDA_VISIBLE_DEVICES"));
  if (index >= static_cast<int>(gpus.size()))
    throw ConfigError(
        fmt::format("there is no GPU {} here", index),
        fmt::format("this process sees {} CUDA device{}, numbered from 0", gpus.size(), gpus.size() == 1 ? "" : "s"),
        "start one rank for each GPU; or name them, `--devices cuda:0` for one that all ranks share, "
        "`--devices cpu` for none");
  if (driver_is_old(seen.driver)) throw OldDriverError(seen.driver);
  return {.kind = DeviceSpec::Kind::kCuda, .index = index, .gpu = gpus[static_cast<size_t>(index)]};
}

bool each_rank_sees_its_own_gpu() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible && *visible && visible_gpu_ids(all_gpu_ids(), visible).size() == 1;
}

DeviceSpec gpu_of_local_rank(int local_rank) { return gpu_here(each_rank_sees_its_own_gpu() ? 0 : local_rank); }

void check_workers(size_t workers, int64_t shards) {
  if (static_cast<int64_t>(workers) <= shards) return;
  throw ConfigError(fmt::format("{} workers for {} shard{}", workers, shards, shards == 1 ? "" : "s"),
                    "a shard is the smallest piece of work; a worker without one would only wait",
                    fmt::format("name at most {} device{}, or begin a new run with more shards (`--set shards={}`)",
                                shards, shards == 1 ? "" : "s", workers));
}

}  // namespace tandem
