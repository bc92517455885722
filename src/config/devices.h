// config/devices.h -- `--devices` text to a list of devices: "auto", "cpu", "cpu:4", "cpu:3@1,0.5,0.5",
// "cuda:0,cuda:2".
//
// One entry is one worker, in the order given; a GPU may be named several times, for several workers on it. What comes
// after '@' slows each CPU worker for tests (1 is full speed); workers so slowed share cores, as far as cores go round,
// or name theirs: "cpu:1@0.5/3" runs on core 3.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/gpu_ids.h"

namespace tandem {

// What the machine and the build offer.
struct Machine {
  bool cuda_build = false;
  int cuda_devices = 0;     // kNotAsked: parse_devices() asks the driver, where it needs to know
  std::vector<GpuId> gpus;  // what is known of them, by number
  static constexpr int kNotAsked = -1;
  int cpu_cores = 1;       // cores that this process may use
  std::vector<int> cores;  // their numbers, from any of them on; those that share a real core with an earlier one last
};

// What this machine offers to this process: its cores, and its GPUs if libtandem_cuda.so stands beside the program.
Machine this_machine();

struct DeviceSpec {
  enum class Kind { kCpu, kCuda };
  Kind kind = Kind::kCpu;
  int index = 0;               // CPU worker or CUDA device
  double speed = 1.0;          // share of full speed, in (0, 1]
  int core = -1;               // the one it runs on; -1: where the system puts it
  GpuId gpu = {};              // of a CUDA device
  bool by_local_rank = false;  // which GPU it is, its own machine knows
  std::string name() const;    // "cpu:0", "cuda:2"
};

// "" means "auto": every CUDA device, else a CPU worker per core, at most eight and at most `shards`. Throws
// ConfigError.
std::vector<DeviceSpec> parse_devices(std::string_view text, const Machine& machine, int64_t shards = 1);

// A text that means the same devices to another process of this machine.
std::string devices_text(const std::vector<DeviceSpec>& devices);

// The GPU of this number among those that this process sees. Throws ConfigError if there is none.
DeviceSpec gpu_here(int index);
// The one of this local rank, or the only one where CUDA_VISIBLE_DEVICES leaves each rank its own.
DeviceSpec gpu_of_local_rank(int local_rank);
bool each_rank_sees_its_own_gpu();

// Throws ConfigError if there are more workers than shards: a shard is never split.
void check_workers(size_t workers, int64_t shards);

}  // namespace tandem
