// monitor/machine_sampler.h -- takes samples: GPUs through NVML, the machine through /proc, runs through their folders.
//
// One look costs well under a millisecond beside NVML's own time. Not for several threads at once.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <vector>

#include "monitor/host_meter.h"
#include "monitor/run_finder.h"
#include "monitor/run_watch.h"
#include "monitor/sample.h"

namespace tandem {

class Nvml;

struct MonitorSamplerOptions {
  std::vector<std::filesystem::path> roots;
  std::vector<std::filesystem::path> runs;  // these only, if any
  bool find_processes = true;               // runs of workers that lie elsewhere, too
  double recent_seconds = 600;              // runs that ended are shown this long
};

class MonitorSampler {
 public:
  explicit MonitorSampler(MonitorSamplerOptions options);  // opens NVML: 10 to 500 ms with a real driver
  ~MonitorSampler();
  MonitorSample take();
  // A first look, so that the next one has shares of time.
  void warm_up();

 private:
  void find_runs(double unix_now);
  void read_facts();
  void read_gpus(MonitorSample& sample);
  void read_runs(MonitorSample& sample);

  MonitorSamplerOptions options_;
  std::unique_ptr<Nvml> nvml_;
  std::vector<GpuFacts> facts_;
  std::vector<bool> visible_;
  double facts_at_ = -1e9, find_at_ = -1e9, opened_at_ = 0;
  HostMeter meter_;
  RunFinder finder_;
  std::map<std::filesystem::path, std::unique_ptr<RunWatch>> watches_;
};

}  // namespace tandem
