#include "rl/ppo/trained_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/errors.h"
#include "base/shell_word.h"
#include "checkpoint/digest.h"
#include "checkpoint/store.h"
#include "kernels/cpu/linear.h"

namespace tandem {
namespace {

constexpr int64_t kRowsAtOnce = 256;

[[noreturn]] void refuse_policy(const std::string& name, const std::string& why) {
  throw CheckpointError(fmt::format("{} is not a plain policy of the PPO learner", name), why,
                        "name a run of ppo or of another recipe of the PPO learner, with net.kind mlp");
}

std::vector<float> policy_tensor(const SafetensorsFile& model, const std::string& name, const std::string& key,
                                 std::vector<int64_t>& shape, size_t dimensions) {
  const TensorView* const found = model.find(key);
  if (!found) refuse_policy(name, fmt::format("it has no tensor '{}'", key));
  if (found->dtype != DType::kF32 || found->shape.size() != dimensions)
    refuse_policy(
        name, fmt::format("'{}' is no float32 tensor of {} dimension{}", key, dimensions, dimensions == 1 ? "" : "s"));
  shape.assign(found->shape.begin(), found->shape.end());
  std::vector<float> numbers(found->bytes.size() / sizeof(float));
  std::memcpy(numbers.data(), found->bytes.data(), found->bytes.size());
  return numbers;
}

}  // namespace

TrainedPolicy::TrainedPolicy(const SafetensorsFile& model, Activation activation, const std::string& name)
    : activation_(activation) {
  std::vector<int64_t> shape;
  for (int i = 0; i == 0 || model.find(fmt::format("policy.{}.weight", i)); i += 2) {
    const std::string key = fmt::format("policy.{}", i);
    const std::vector<float> rows = policy_tensor(model, name, key + ".weight", shape, 2);  // [out, in]
    Layer layer{shape[1], shape[0], std::vector<float>(rows.size()), {}};
    if (layer.in < 1 || layer.out < 1 || (i > 0 && layer.in != layers_.back().out))
      refuse_policy(name, fmt::format("'{}.weight' takes {} numbers, not {}", key, layer.in,
                                      i > 0 ? layers_.back().out : layer.in));
    for (int64_t o = 0; o < layer.out; ++o)
      for (int64_t j = 0; j < layer.in; ++j) layer.weight[j * layer.out + o] = rows[o * layer.in + j];
    layer.bias = policy_tensor(model, name, key + ".bias", shape, 1);
    if (shape[0] != layer.out)
      refuse_policy(name, fmt::format("'{}.bias' has {} numbers, not {}", key, shape[0], layer.out));
    layers_.push_back(std::move(layer));
  }
  continuous_ = model.find("log_deviation") != nullptr;
  if (!continuous_) return;
  policy_tensor(model, name, "log_deviation", shape, 1);
  if (shape[0] != layers_.back().out)
    refuse_policy(name, fmt::format("'log_deviation' has {} numbers, not {}", shape[0], layers_.back().out));
}

void TrainedPolicy::outputs(const float* observations, int64_t n, float* out) const {
  std::vector<float> from, to;
  const float* in = observations;
  for (size_t l = 0; l < layers_.size(); ++l) {
    const Layer& layer = layers_[l];
    const bool last = l + 1 == layers_.size();
    to.resize(static_cast<size_t>(n * layer.out));
    float* const target = last ? out : to.data();
    linear(in, layer.weight.data(), layer.bias.data(), target, n, layer.in, layer.out);
    if (last) break;
    for (float& x : to) x = activation_ == Activation::kTanh ? std::tanh(x) : std::max(x, 0.0f);
    std::swap(from, to);
    in = from.data();
  }
}

Policy greedy_policy(const Environment& environment, const TrainedPolicy& trained) {
  return [&environment, &trained, rules = environment.action_rules()](const std::byte* states, int64_t n, uint64_t,
                                                                      const ChosenActions& actions) {
    const int64_t width = environment.observation_size(), count = trained.actions(), numbers = trained.action_size();
    std::vector<float> seen(static_cast<size_t>(kRowsAtOnce * width)), logits(static_cast<size_t>(kRowsAtOnce * count));
    for (int64_t first = 0; first < n; first += kRowsAtOnce) {
      const int64_t rows = std::min(kRowsAtOnce, n - first);
      environment.observe(states + first * environment.state_bytes(), seen.data(), rows);
      if (numbers > 0) {
        trained.outputs(seen.data(), rows, actions.continuous + first * numbers);
        continue;
      }
      trained.outputs(seen.data(), rows, logits.data());
      for (int64_t r = 0; r < rows; ++r) {
        float* const row = logits.data() + r * count;
        for (size_t a = 0; a < rules.size(); ++a)
          if (!is_possible(rules[a], seen.data() + r * width)) row[a] = std::numeric_limits<float>::lowest();
        actions.discrete[first + r] = static_cast<int32_t>(std::max_element(row, row + count) - row);
      }
    }
  };
}

LoadedPolicy load_policy(const std::filesystem::path& run) {
  auto store = CheckpointStore::reader(FileSystem::real(), run / "checkpoints");
  const auto loaded = store.load_newest(CheckpointParts::kModel);
  if (!loaded)
    throw ConfigError(fmt::format("{} has no checkpoint", run.string()),
                      "the run ended, or was stopped, before its first save",
                      fmt::format("go on with it first: `tandem resume {}`", shell_word(run.string())));
  const auto& settings = loaded->manifest.settings;
  if (const std::string kind = settings.value("net.kind", "mlp"); kind != "mlp")
    throw ConfigError(fmt::format("eval plays no policy of net.kind {}", kind),
                      "a recurrent policy needs its window of steps, which is the worker's to compute",
                      "judge the run by its episode returns (`tandem report`), or train it with net.kind mlp");
  const auto activation = settings.value("net.activation", "tanh") == "relu" ? TrainedPolicy::Activation::kRelu
                                                                             : TrainedPolicy::Activation::kTanh;
  return {std::make_shared<const TrainedPolicy>(loaded->model, activation, run.string()), loaded->manifest.step,
          weights_digest(loaded->model.tensors()), loaded->refused};
}

}  // namespace tandem
