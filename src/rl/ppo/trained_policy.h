// rl/ppo/trained_policy.h -- inference of a plain policy of the PPO learner without libtorch: the newest whole weights
// of a run, ready to play greedily.
//
// The same net as the learner's within rounding. A state's answer has the same bits whatever else is in the batch.
// Tensors `policy.0`, `policy.2`, ... are its linear layers, with activations between them; `log_deviation` is there
// where actions are continuous. Sizes are read from the tensors.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "rl/play.h"

namespace tandem {

class TrainedPolicy {
 public:
  enum class Activation { kTanh, kRelu };

  // Throws CheckpointError where this is no such net; `name` is what the message calls it.
  TrainedPolicy(const SafetensorsFile& model, Activation activation, const std::string& name);

  int64_t observation_size() const { return layers_.front().in; }
  int64_t actions() const { return continuous_ ? 0 : layers_.back().out; }
  int64_t action_size() const { return continuous_ ? layers_.back().out : 0; }
  // observations [n, observation_size] -> out [n, actions or action_size]: logits, or means of continuous actions.
  void outputs(const float* observations, int64_t n, float* out) const;

 private:
  struct Layer {
    int64_t in = 0, out = 0;
    std::vector<float> weight, bias;  // [in, out]
  };
  std::vector<Layer> layers_;
  Activation activation_;
  bool continuous_ = false;
};

// The most likely action: the one of the largest logit (of equal ones the first), or the mean. Both must outlive it.
Policy greedy_policy(const Environment& environment, const TrainedPolicy& trained);

struct LoadedPolicy {
  std::shared_ptr<const TrainedPolicy> net;
  int64_t step = 0;
  std::string digest;
  std::vector<std::string> refused;  // newer checkpoints passed over, each with its reason
};
// Throws Error if there are no weights, or of another kind of net.
LoadedPolicy load_policy(const std::filesystem::path& run);

}  // namespace tandem
