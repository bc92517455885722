// guard/fault_watch.h -- what is wrong with a GPU, in words: what it is, why, and what to do.
//
// Throttling, heat, memory errors, a narrow PCIe link, full memory, a GPU that is gone, Xid errors, a driver that does
// not answer. Each is reported once when it has lasted a few seconds, and again at the earliest ten minutes after it
// was over. Pure: readings and time are given.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "guard/policy.h"
#include "hardware/gpu.h"
#include "hardware/nvml.h"

namespace tandem {

struct GpuNotice {
  enum class Weight {
    kNote,     // worth knowing: a GPU at its power limit under full load
    kWarning,  // costs speed or will
    kFault,    // the GPU can't be used as it is
  };
  int gpu = -1;
  std::string id;  // "thermal_hw", "xid_79", "lost": the same for the same thing
  Weight weight = Weight::kWarning;
  std::string what, why, todo;
  bool over = false;         // it is no longer so; `what` says it
  std::string text() const;  // "GPU 0 (...) runs slower: ... ; cause: ...; do: ..."
};

class FaultWatch {
 public:
  explicit FaultWatch(GuardOptions options) : options_(options) {}

  // What is new since the last call. `lowered`: GuardPolicy::lowered(), for what the guard does itself is no fault.
  std::vector<GpuNotice> see(double time, const std::vector<GpuFacts>& facts, const std::vector<GpuReading>& gpus,
                             const std::map<int, double>& lowered = {});
  // All that is wrong now, however short it has lasted, with errors that were counted before: for one look. `found_w`:
  // a guard holds this GPU's limit lower than that.
  static std::vector<GpuNotice> at_once(const GuardOptions& options, const GpuFacts& facts, const GpuReading& now,
                                        std::optional<double> found_w = {});
  GpuNotice xid(const std::vector<GpuFacts>& facts, const XidEvent& event) const;
  // The driver has not answered for so long. `held`: and a run waits for it.
  std::optional<GpuNotice> silence(double quiet_seconds, bool held = false);

  static constexpr double kLongestSeconds = 10;  // the longest that anything must last before it is reported

 private:
  struct Seen {
    std::optional<double> since, gone_since;
    bool reported = false;
    double reported_at = -1e9;
  };
  struct Condition {
    double after_seconds = 5;
    GpuNotice notice;
  };
  std::vector<Condition> conditions(const GpuFacts& facts, const GpuReading& now, std::optional<double> found_w);
  void add_heat(const GpuFacts& facts, const GpuReading& now, std::optional<double> found_w,
                std::vector<Condition>& found) const;
  void add_memory_errors(const GpuFacts& facts, const GpuReading& now, std::vector<Condition>& found);
  static void add_link(const GpuFacts& facts, const GpuReading& now, std::vector<Condition>& found);

  GuardOptions options_;
  std::map<std::pair<int, std::string>, Seen> seen_;
  std::map<int, uint64_t> corrected_, uncorrected_;  // ECC counts at the first sight
  bool silent_ = false;
};

}  // namespace tandem
