// guard/gpu_sampler.h -- a thread that reads the GPUs every second, carries out the guard's actions, and keeps the
// files gpus.jsonl and energy.json of a run.
//
// All that talks to the driver is in this thread: a call that hangs there holds nobody else. Who started it looks at
// quiet_seconds(). At its end everything borrowed is given back; if the thread hangs it is left behind, and what it
// borrowed is the watchdog's business (guard/lease.h).
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "guard/lease.h"
#include "guard/policy.h"
#include "hardware/nvml.h"

namespace tandem {

// Which GPUs: all, or by uuid (a MIG device stands for its GPU) and index.
struct WantedGpus {
  bool all = false;
  std::set<std::string> uuids;
  std::set<int> indices;
  bool any() const { return all || !uuids.empty() || !indices.empty(); }
  bool has(const GpuFacts& facts) const;
  bool operator==(const WantedGpus&) const = default;
};

struct GuardSample {
  double time = 0;  // the guard's clock; GpuReading::time_s is the real one
  std::vector<GpuFacts> facts;
  std::vector<GpuReading> gpus;
  std::vector<XidEvent> xids;  // since the last sample
};

struct ActionResult {
  GuardAction action;
  GuardAnswer answer;
  double time = 0;  // the guard's clock: readings before it do not show it
};

// What the thread has to say of itself.
struct GuardWord {
  bool trouble = false;
  std::string text;
};

struct GpuSamplerOptions {
  double interval_s = 1;
  WantedGpus wanted;
  bool processes = false;         // who is on each GPU, too
  std::filesystem::path run_dir;  // empty: no files
  double price_kwh = 0;
  std::string currency;
  bool restores = true;  // what guards left that are gone
  Lease::Options lease = {};
};

// How fast the guard's clock runs: 1, or what TANDEM_GUARD_SPEED says, for tests on machines whose time runs faster.
double guard_speed();

class GpuSampler {
 public:
  explicit GpuSampler(GpuSamplerOptions options);
  ~GpuSampler();  // gives everything back; waits a few seconds at most

  std::vector<GuardSample> take();  // what is new
  std::vector<ActionResult> take_done();
  std::vector<GuardWord> take_words();
  void submit(const GuardAction& action);  // kFan, kFanAuto, kPower, kPowerBack
  void want(const WantedGpus& wanted);
  // Takes a last reading, writes the files, gives back what was borrowed. False if the driver hangs.
  bool end();
  bool gave_all_back() const;  // after end(): if not, take_words() says what and what to do

  NvmlStatus status() const;      // of NVML; kOk until it was opened
  bool opened() const;            // NVML was asked, with whatever answer
  double quiet_seconds() const;   // since the thread last finished a round, by the guard's clock
  nlohmann::json energy() const;  // as energy.json; null if nothing was measured
  std::string energy_text() const;

 private:
  struct Shared;
  static void work(const std::shared_ptr<Shared>& shared);  // the thread
  static void watch(Shared& shared);
  std::shared_ptr<Shared> shared_;
  bool ended_ = false;
};

}  // namespace tandem
