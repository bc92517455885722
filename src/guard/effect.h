// guard/effect.h -- what a lower power limit cost and saved, measured: power and speed before and after.
//
// Pure: every second it gets the power of each GPU and the progress of the work; a change is marked; some seconds
// later, when clocks and temperature have settled, both sides are compared. A window never reaches over the next change
// of the same GPU. Saved is what the steps that were made would have cost before, less what they cost: a run that is
// held or waits saves nothing.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tandem {

struct Effect {
  int gpu = 0;
  double from_w = 0, to_w = 0;                    // the limits
  double before_w = 0, after_w = 0;               // the power
  std::optional<double> before_rate, after_rate;  // steps or samples per second; absent where nothing ran
  double saved_share() const { return before_w > 0 ? 1 - after_w / before_w : 0; }
  std::optional<double> lost_share() const;
  // "GPU 0: limit 220 -> 198 W: power 219 -> 197 W (10.0 % less), speed 812 -> 790 steps/s (2.7 % less)"
  std::string text(const std::string& unit) const;
};

class EffectMeter {
 public:
  static constexpr double kWindowSeconds = 15, kSettleSeconds = 5, kLeastSeconds = 5;

  // `progress` only grows (steps, or samples), absent where nothing runs; `real_time` is what rates are counted in.
  void add(double time, double real_time, const std::map<int, double>& power_w, std::optional<double> progress);
  void changed(double time, int gpu, double from_w, double to_w);
  std::vector<Effect> finished();  // those whose time has come since the last call
  double saved_joules() const { return saved_joules_; }

 private:
  struct Point {
    double time, real_time;
    std::map<int, double> power_w;
    std::optional<double> progress;
  };
  struct Mark {
    double time, until;  // until: the GPU's next change, or a hold begins or ends
    bool going;          // something ran when it changed
    Effect effect;
  };
  std::optional<double> mean_power(int gpu, double from, double to) const;
  std::optional<double> rate(double from, double to) const;

  std::deque<Point> points_;
  std::vector<Mark> marks_;
  std::map<int, double> step_joules_;  // of GPUs whose limit is lower now: what they took for a step before
  std::map<int, double> changed_at_;
  double saved_joules_ = 0;
};

}  // namespace tandem
