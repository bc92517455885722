// engine/gradient_ready.h -- while backward() runs: which end of the flat gradient is final already.
//
// backward() goes through the model from its last layer to its first, and parameters lie in the buffer in the model's
// order, so a growing end of the buffer is final. Combine::ready() may send it meanwhile.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/job_state.h"

namespace tandem {

class GradientReady {
 public:
  using Report = std::function<void(int64_t first, int64_t last)>;  // floats of the gradient; `last` is its end

  // Hooks stay on the parameters as long as this lives.
  explicit GradientReady(JobState& state);
  ~GradientReady();
  GradientReady(const GradientReady&) = delete;

  // From now on, until end(): `report` is called from backward(), each time that another 64 Ki floats or more are
  // final: everything from `first` to the end of the gradient. It holds for one call of backward().
  void begin(Report report);
  void end() { report_ = nullptr; }
  // A gradient that does not come through autograd (engine/tree_sums.h): by its offset in the contribution. One that
  // comes both ways is never reported as final, so the first call of backward() only learns which ones do.
  void final_at(int64_t offset);

 private:
  struct Hook;
  void by_autograd(size_t parameter);
  void final(size_t parameter);

  JobState& state_;
  Report report_;
  std::vector<bool> done_;                    // by parameter
  std::vector<bool> autograd_, handed_over_;  // by parameter: ways in which its gradient was seen to come
  int64_t begun_ = 0;
  size_t next_ = 0;       // all parameters from here on are final
  int64_t reported_ = 0;  // all floats from here on were reported
};

}  // namespace tandem
