#include "recipes/tiny_rl_eval.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/errors.h"
#include "base/shell_word.h"
#include "checkpoint/digest.h"
#include "checkpoint/store.h"
#include "recipes/eval_verb.h"
#include "rl/dqn/q_function.h"
#include "world/catch_game.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

class CatchEnvironment : public Environment {
 public:
  int64_t observation_size() const override { return CatchGame::kFeatures; }
  int64_t actions() const override { return CatchGame::kMoves; }
  int64_t state_bytes() const override { return sizeof(CatchGame); }
  int64_t max_episode_steps() const override { return CatchGame::kLength; }
  std::optional<double> score(double mean_return) const override { return (mean_return + 0.6) / 1.6; }

  void reset(std::byte* states, int64_t n, const RandomKey& key, const Outcome* only_ended) const override {
    for (int64_t i = 0; i < n; ++i)
      if (!only_ended || only_ended[i].end != End::kNone)
        games(states)[i] = CatchGame::start(random_below(key, 2 * static_cast<uint64_t>(i), CatchGame::kColumns),
                                            random_below(key, 2 * static_cast<uint64_t>(i) + 1, CatchGame::kColumns));
  }
  void observe(const std::byte* states, float* out, int64_t n) const override {
    for (int64_t i = 0; i < n; ++i)
      reinterpret_cast<const CatchGame*>(states)[i].observe(out + i * CatchGame::kFeatures);
  }
  void step(std::byte* states, const int32_t* actions, Outcome* out, int64_t n, const RandomKey&) const override {
    for (int64_t i = 0; i < n; ++i) {
      CatchGame& game = games(states)[i];
      const auto reward = static_cast<float>(game.move(actions[i]));
      out[i] = {.reward = reward, .end = game.done() ? End::kTerminated : End::kNone};
    }
  }

 private:
  static CatchGame* games(std::byte* states) { return reinterpret_cast<CatchGame*>(states); }
};

// The plain net of tiny-rl: two hidden layers with ReLU, one value for each move.
class CatchNet : public QFunction {
 public:
  CatchNet(const SafetensorsFile& model, const std::string& name) {
    for (const char* layer : {"fc1", "fc2", "out"}) {
      const TensorView* const weight = model.find(std::string(layer) + ".weight");
      const TensorView* const bias = model.find(std::string(layer) + ".bias");
      const int64_t in = layers_.empty() ? CatchGame::kFeatures : layers_.back().out;
      if (!weight || !bias || weight->dtype != DType::kF32 || bias->dtype != DType::kF32 || weight->shape.size() != 2 ||
          weight->shape[1] != in || bias->shape.size() != 1 || bias->shape[0] != weight->shape[0])
        throw CheckpointError(fmt::format("{} is not a net of tiny-rl", name),
                              fmt::format("its layer '{}' is missing or of another size", layer),
                              "name a run of tiny-rl");
      Layer one{in, weight->shape[0], numbers(*weight), numbers(*bias)};
      layers_.push_back(std::move(one));
    }
  }
  int64_t observation_size() const override { return CatchGame::kFeatures; }
  int64_t actions() const override { return layers_.back().out; }
  void q_values(const float* states, int64_t n, float* out) const override {
    std::vector<float> from, to;
    for (int64_t row = 0; row < n; ++row) {
      from.assign(states + row * CatchGame::kFeatures, states + (row + 1) * CatchGame::kFeatures);
      for (size_t l = 0; l < layers_.size(); ++l) {
        const Layer& layer = layers_[l];
        to = layer.bias;
        for (int64_t o = 0; o < layer.out; ++o) {
          for (int64_t i = 0; i < layer.in; ++i) to[o] += layer.weight[o * layer.in + i] * from[i];
          if (l + 1 < layers_.size()) to[o] = std::max(to[o], 0.0f);
        }
        from.swap(to);
      }
      std::copy(from.begin(), from.end(), out + row * actions());
    }
  }

 private:
  struct Layer {
    int64_t in, out;
    std::vector<float> weight, bias;  // [out, in], [out]
  };
  static std::vector<float> numbers(const TensorView& view) {
    std::vector<float> out(view.bytes.size() / sizeof(float));
    std::memcpy(out.data(), view.bytes.data(), view.bytes.size());
    return out;
  }
  std::vector<Layer> layers_;
};

JudgedAgent catch_agent(const fs::path& run) {
  auto store = CheckpointStore::reader(FileSystem::real(), run / "checkpoints");
  const auto loaded = store.load_newest(CheckpointParts::kModel);
  if (!loaded)
    throw ConfigError(fmt::format("{} has no checkpoint", run.string()),
                      "the run ended, or was stopped, before its first save",
                      fmt::format("go on with it first: `tandem resume {}`", shell_word(run.string())));
  return judged_values(std::make_shared<CatchNet>(loaded->model, run.string()), loaded->manifest.step,
                       weights_digest(loaded->model.tensors()), loaded->refused);
}

}  // namespace

RecipeVerb tiny_rl_eval_verb() {
  return greedy_eval_verb(
      [](const RecipeSettings&) {
        return JudgedEnvironment{std::make_shared<CatchEnvironment>(), "catch"};
      },
      1000, catch_agent);
}

}  // namespace tandem
