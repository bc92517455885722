// guard/run_guard.h -- the guard inside a run: it watches the run's GPUs and tells its launcher what to do.
//
// The launcher calls look() in its loop, which never waits: the driver is asked by a thread (guard/gpu_sampler.h). A
// run without GPUs has no such thread, unless the processor has energy counters.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "config/devices.h"
#include "config/run_settings.h"
#include "guard/effect.h"
#include "guard/fault_watch.h"
#include "guard/gpu_sampler.h"
#include "guard/policy.h"

namespace tandem {

class RunGuard {
 public:
  struct Line {
    enum class To { kTimeline, kTalk, kWarning } to = To::kTalk;
    std::string kind;  // of the event: guard, fault
    std::string text;
  };
  struct News {
    std::vector<Line> lines;
    std::vector<std::pair<int, std::string>> gone;  // ranks whose GPU has vanished, and why
  };

  RunGuard(const RecipeSettings& settings, std::filesystem::path run_dir);
  ~RunGuard();

  // The run's workers on this machine, by rank: which devices they drive now. `step`: how far the run is; absent: it is
  // not going.
  News look(const std::map<int, DeviceSpec>& devices, std::optional<int64_t> step);
  bool holds() const { return policy_.held(); }  // the run is to wait at its next step boundary
  std::optional<int> gpu_number(const DeviceSpec& device) const { return gpu_of(device, facts_); }
  std::map<int, double> shares() const;  // by rank: of its speed that a plan counts with; 1 is left out
  // The last reading is taken and everything borrowed is given back.
  std::vector<Line> end();
  // {"energy": {...}, "guard": {...}} for run.json; empty if there was nothing to measure.
  nlohmann::json figures() const;
  std::string energy_text() const { return energy_text_; }

 private:
  static std::optional<int> gpu_of(const DeviceSpec& device, const std::vector<GpuFacts>& facts);
  void on_sample(const GuardSample& sample, bool newest, std::optional<int64_t> step, News& news);
  void on_result(const ActionResult& result, News& news);
  void report(const GpuNotice& notice, News& news);
  void carry_out(const GuardAction& action, News& news);
  void on_lost(int gpu, const std::string& why, News& news);

  std::filesystem::path run_dir_;
  bool on_;
  double price_kwh_;
  std::string currency_;
  GuardPolicy policy_;
  FaultWatch faults_;
  EffectMeter effects_;
  std::unique_ptr<GpuSampler> sampler_;
  std::map<int, DeviceSpec> devices_;
  std::vector<GpuFacts> facts_;
  std::set<int> lost_;
  std::map<int, double> limit_w_, from_w_;  // now, and when the last action was chosen
  nlohmann::json energy_;
  std::string energy_text_;
  int actions_ = 0;
  double held_seconds_ = 0, held_at_ = 0, lost_speed_ = 0;
  bool asked_rapl_ = false;
};

}  // namespace tandem
