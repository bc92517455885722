// guard/policy.h -- what is to be done about a hot GPU, and when it is given back.
//
// A ladder per GPU, climbed while it is hot: shards move away to cooler ones, then its fans are raised, then its power
// limit is lowered as far as the user allowed. Before damage the run is held until it is cool; a GPU that stays hot
// while it is held (somebody else heats it) climbs on with fans and limit. What was done is undone in the opposite
// order once the GPU has been cool for a while; a GPU that became hot again soon after waits twice as long the next
// time. Pure: time and readings go in, actions come out, so tests can simulate it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/run_settings.h"
#include "config/units.h"
#include "hardware/gpu.h"

namespace tandem {

struct GuardOptions {
  bool acts = true;  // false: says what is wrong, changes nothing
  double target_c = 80, warn_c = 85, act_c = 90;
  std::optional<PowerLimit> power;  // how far a limit may be lowered
  bool fan = true;
  // What a run offers; a guard that stands alone has neither.
  bool shares = false;                                      // shards can move between its GPUs
  bool hold = false;                                        // it can be held at a step boundary
  static GuardOptions from(const GuardSettings& settings);  // of a run: both offered
};

// The temperatures of one GPU. Where it slows itself down earlier than at 90 C, all of them come before that.
struct HeatLimits {
  double target_c = 80, warn_c = 85, act_c = 90, pause_c = 94;
  static HeatLimits of(const GuardOptions& options, const GpuFacts& facts);
};

struct GuardAction {
  enum class Kind {
    kShare,      // of its speed that the plan counts with: value, 1 is all of it
    kFan,        // to value percent
    kFanAuto,    // the driver's own again
    kPower,      // the limit becomes value watts
    kPowerBack,  // the limit that was there before
    kHold,       // the run waits at its next step boundary
    kResume,     // and goes on
    kNote,       // nothing is done; the text says why
  };
  Kind kind = Kind::kNote;
  int gpu = -1;
  double value = 0;
  std::string text;                   // what is done and why, for people
  std::optional<double> from_w = {};  // kPower: the limit it was computed from; void if the limit has changed since
};

class GuardPolicy {
 public:
  explicit GuardPolicy(GuardOptions options) : options_(options) {}

  // `gpus` and `facts` have the same order; `time` only grows. Actions are to be carried out in the order given; while
  // one for fans or limits is under way, its GPU gets no other. Only the newest readings are worth a step.
  std::vector<GuardAction> step(double time, const std::vector<GpuFacts>& facts, const std::vector<GpuReading>& gpus);
  // It was carried out, at this time by the guard's clock.
  void done(const GuardAction& action, double time);
  // The driver refused. `for_good`: this rung is left out from now on; else it is tried again later. True if the
  // message is new.
  bool refused(const GuardAction& action, const std::string& words, bool for_good);
  // Everything is given back, as at the end.
  std::vector<GuardAction> give_all_back();

  bool held() const { return held_since_.has_value(); }
  double share(int gpu) const;
  std::map<int, double> lowered() const;  // the GPUs whose limit it holds lower, and what it found
  const GuardOptions& options() const { return options_; }

  static constexpr double kHotSeconds = 3;      // hot for this long before the first rung
  static constexpr double kSettleSeconds = 15;  // a rung is given this long to help
  static constexpr double kCoolSeconds = 30;    // cool for this long before a rung is undone
  static constexpr double kAgainSeconds = 300;  // hot again this soon after: wait twice as long the next time
  static constexpr double kMostPatience = 64;
  static constexpr double kHoldSeconds = 20;   // a hold lasts at least this long
  static constexpr double kRetrySeconds = 30;  // after a refusal that may pass; twice as long each time, up to
  static constexpr double kMostRetrySeconds = 960;
  static constexpr double kBlindSeconds = 600;  // a hold does not end so long after a hot GPU's last temperature
  static constexpr double kGoneSeconds = 30;    // not among the readings for this long: what was done is undone
  static constexpr double kShares[] = {1, 0.6, 0.3};
  static constexpr double kPowerStep = 0.1;  // of the limit that was found

 private:
  struct Pending {
    std::optional<double> set_w;  // as it was before the action
    bool fan = false;
  };
  struct GpuState {
    int shares = 0;  // index into kShares
    bool fan = false;
    std::optional<double> found_w, set_w;  // the limit as it was, and as we set it
    bool no_fan = false, no_power = false, noted_exhausted = false;
    std::optional<double> hot_since, cool_since;
    double changed = -1e9, undone = -1e9, patience = 1;
    std::optional<Pending> pending;      // an action is under way
    double seen_at = 0, warm_at = -1e9;  // of the last reading, and of the last above target
    double shown_from = -1e9;            // readings from here on show the last action
    double fan_after = -1e9, power_after = -1e9, fan_retry_s = kRetrySeconds, power_retry_s = kRetrySeconds;
    std::map<GuardAction::Kind, std::string> refusals;
  };
  std::optional<GuardAction> climb(GpuState& state, const GpuFacts& facts, const GpuReading& now,
                                   const HeatLimits& limits, bool others_are_cooler);
  std::optional<GuardAction> descend(int gpu, GpuState& state, const std::string& why);
  void hold_or_resume(double time, const std::vector<GpuFacts>& facts, const std::vector<GpuReading>& gpus, int too_hot,
                      bool all_cool, std::vector<GuardAction>& actions);
  void leave_absent(double time, const std::vector<GpuReading>& gpus, std::vector<GuardAction>& actions);
  void look_at_limit(GpuState& state, const GpuFacts& facts, const GpuReading& now, double time,
                     std::vector<GuardAction>& actions);
  double floor_of(const GpuState& state, const GpuFacts& facts) const;

  GuardOptions options_;
  std::map<int, GpuState> states_;
  std::optional<double> held_since_;
  int held_for_ = -1;
  double now_ = 0;
};

// "good to 80 C, warning from 85 C, acting from 90 C"; "85-90 C" where these GPUs differ.
std::string heat_text(const GuardOptions& options, const std::vector<GpuFacts>& facts);

// "GPU 0 (NVIDIA GeForce RTX 3070)"
std::string gpu_text(const GpuFacts& facts);

}  // namespace tandem
