// rl/dqn/q_net.h -- inference of the dueling net of rl/dqn/dueling_net.h without libtorch: ready in milliseconds.
//
// The same net within rounding (q_net_test.cc, tests/python/agents_test.py). Moreover a state's values have the same
// bits whatever else is in the batch, and on every processor. Sizes are read from the tensors.
#pragma once

#include <string>

#include "checkpoint/safetensors.h"
#include "rl/dqn/q_function.h"

namespace tandem {

class QNet : public QFunction {
 public:
  // `model`: the tensors of a checkpoint. `attention_heads` is the one number they do not determine. Throws
  // CheckpointError where this is no such net; `name` is what the message calls it.
  QNet(const SafetensorsFile& model, int64_t attention_heads, const std::string& name);

  int64_t observation_size() const override { return layers_.front().in; }
  int64_t actions() const override { return advantage_.out; }
  void q_values(const float* states, int64_t n, float* out) const override;

 private:
  struct Linear {
    int64_t in = 0, out = 0;
    std::vector<float> weight, bias;  // [in, out]
  };
  struct Norm {
    std::vector<float> weight, bias;
  };
  void attend(std::vector<float>& features, int64_t n) const;

  std::vector<Linear> layers_;
  std::vector<Norm> norms_;
  bool attention_ = false;
  int64_t attention_heads_ = 1;
  Linear query_key_value_, attended_, heads_, value_, advantage_;
  Norm attention_norm_;
};

}  // namespace tandem
