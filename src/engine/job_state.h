// engine/job_state.h -- everything a job consists of: weights, optimizer state, replicated tensors, shard states.
//
// Parameters live in one flat buffer, each at a multiple of 64 bytes; the model's tensors are views into it, and so are
// their gradients. So there is one optimizer kernel, one combine, one write and one digest. The gradient buffer carries
// a tail for batch-norm statistics and the recipe's own sums: a shard's whole contribution is one vector.
//   flat parameters  [ p0 | p1 | ... ]
//   contribution     [ g0 | g1 | ... | batch-norm mean, var of each layer | the recipe's floats ]
// A recipe declares its state in build(); then seal() lays it out, and nothing can be added.
//
// A parameter that is registered under two names is one: it is laid out once, under the first (nn/tie_weights.h).
// A convolution weight that is channels last in the model stays so in all these vectors (nn/channels_last.h). Files,
// snapshots and digests have row-major order, always: to_file_order() and from_file_order() are the two ways.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "nn/batch_norm.h"
#include "nn/init.h"
#include "nn/layer_context.h"
#include "reduce/shard_range.h"

namespace torch::nn {
class Module;
}

namespace tandem {

struct ParameterEntry {
  std::string name;
  std::vector<int64_t> sizes;
  int64_t offset = 0, count = 0;     // in floats
  std::vector<std::string> aliases;  // further names of a tied parameter
  bool channels_last = false;        // in memory; in files it is row by row
};

// A named array that every shard has one of: an environment's state, a replay ring. Index it with JobState::shard().
struct ShardField {
  int id = -1;
};

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
  bool like_parameters = false;  // a flat vector, laid out as the parameters
};

class JobState {
 public:
  static constexpr int64_t kAlignFloats = 16;  // of a parameter, 64 bytes: libraries choose kernels by alignment
  // `mine`: the shards whose state lives in this process.
  JobState(int shards, uint64_t seed, ShardRange mine);
  JobState(int shards, uint64_t seed) : JobState(shards, seed, {0, shards}) {}

  // ---- for Recipe::build ----
  // The trained model. Its weights are drawn from the seed (nn/init.h) and moved into the flat buffer at seal(). With
  // rules, each parameter follows from the seed and its name; without, from its number, by torch's default.
  // Throws ConfigError for what would break the promise: torch's own BatchNorm or Dropout layers, and for a layer that
  // uses another weight than it has registered.
  void add_model(std::shared_ptr<torch::nn::Module> model, const std::string& prefix = "",
                 const InitRules& initial = {});
  // One of several models of equal size that learn side by side, each as if it were alone: drawn from the seed as the
  // only one (rules see its names without the prefix), clipped by its own norm.
  void add_group(std::shared_ptr<torch::nn::Module> model, const std::string& prefix, const InitRules& initial = {});
  // A second copy of the model, not trained, that starts with its weights: a target network, an average.
  void add_target_network(std::shared_ptr<torch::nn::Module> model, const std::string& name);
  // A tensor that all workers hold alike; changed in apply() only.
  at::Tensor add_replicated(const std::string& name, at::Tensor initial);
  // In host memory, or where the job's numbers live.
  ShardField add_shard_field(const std::string& name, std::vector<int64_t> sizes, at::ScalarType dtype,
                             bool on_device = false);

  // ---- layout ----
  void seal(int64_t recipe_floats, int optimizer_states);
  int shards() const { return shards_; }
  uint64_t seed() const { return seed_; }
  const std::vector<ParameterEntry>& parameter_entries() const { return entries_; }
  // Which tensor this float of a contribution belongs to; parameter_entries().size() for the batch-norm statistics.
  int64_t tensor_at(int64_t offset) const;
  std::string tensor_text(int64_t tensor) const;                  // "the gradient of 'fc1.weight'"
  int64_t parameter_floats() const { return parameter_floats_; }  // with the padding between tensors
  int groups() const { return std::max(1, groups_); }  // of parameters, each of parameter_floats() / groups()
  int64_t statistic_floats() const { return statistic_floats_; }
  int64_t contribution_floats() const { return parameter_floats_ + statistic_floats_ + recipe_floats_; }

  std::span<float> parameters() const;
  std::span<float> running_statistics() const;        // same layout as a contribution's statistics
  std::span<float> optimizer_state(int index) const;  // as long as the parameters
  std::span<float> target_network(int index) const;   // its weights, laid out as the parameters

  const std::vector<at::Tensor>& parameter_tensors() const {
    return parameter_views_;
  }  // in parameter_entries()' order

  // The vector that backward() now adds to. Buffer 0 serves ordinary phases; lock-step gives every shard its own.
  std::span<float> contribution(int buffer = 0);
  void use_contribution(int buffer);

  std::vector<at::Tensor> device_fields() const;  // of this process's shards, those that lie on the device
  ShardRange mine() const { return mine_; }
  int64_t version() const { return version_; }  // another one, other memory of the shards
  // Another range: every shard in it gets fields of zeros, to be filled by init_shard() or from a snapshot.
  void own(ShardRange mine);
  bool has_shard_state() const { return !shard_states_.empty(); }
  at::Tensor& shard(ShardField field, int shard) { return shard_states_[field.id].per_shard.at(shard - mine_.first); }
  // Around a validation: what modules' is_training() says. Afterwards each says what it said before.
  void begin_evaluation();
  void end_evaluation();
  // ---- layers (nn/layer_context.h) ----
  LayerContext& layers() { return *layers_; }
  bool has_batch_norm() const { return !norms_.empty(); }
  bool has_shard_aware() const { return !aware_.empty(); }
  ShardAware* shard_aware(const std::string& name);  // by its name in the model; null: there is none
  // The first layer that has parameters, but can't run several shards in one pass: "'fc1' (torch::nn::Linear)". Or "".
  const std::string& plain_layer() const { return plain_layer_; }
  // Where a parameter's gradient, or a batch norm's statistic, lies in a contribution; -1: nowhere.
  int64_t offset_of(const at::Tensor& parameter_or_buffer) const;

  // ---- for checkpoints: names as they appear in the files ----
  // Whether the tensor's memory is as the files have it; if not, a copy that is, and back.
  bool in_file_order(const NamedTensor& t) const;
  at::Tensor to_file_order(const NamedTensor& t) const;
  void from_file_order(const NamedTensor& t, const at::Tensor& file) const;
  std::vector<NamedTensor> model_tensors() const;     // parameters, running statistics, other buffers
  std::vector<NamedTensor> replicated_state() const;  // optimizer, target networks, replicated tensors
  std::vector<NamedTensor> shard_state(int shard) const;
  // The same of a shard that may live elsewhere: tensors without memory of their own, for layouts.
  std::vector<NamedTensor> shard_shape(int shard) const;

 private:
  struct Model {
    std::shared_ptr<torch::nn::Module> module;
    std::string prefix;
  };
  struct TargetNetwork {
    std::shared_ptr<torch::nn::Module> module;
    std::string name;
    at::Tensor flat;
  };
  struct ShardArray {
    std::string name;
    std::vector<int64_t> sizes;
    at::ScalarType dtype;
    bool on_device;
    std::vector<at::Tensor> per_shard;  // of mine_, in order
  };
  void add_model(std::shared_ptr<torch::nn::Module> model, const std::string& prefix, const InitRules& initial,
                 const std::string& names_begin);
  void add_entries(const Model& model, std::vector<at::Tensor>& parameters);
  void add_norms_and_buffers(const Model& model);
  void bind_layers(const torch::nn::Module& model, const std::string& prefix);
  void bind_contribution(const at::Tensor& flat);

  int shards_;
  ShardRange mine_;
  uint64_t seed_, next_init_ = 0;
  int groups_ = 0;
  int64_t version_ = 0;
  bool sealed_ = false;
  std::vector<Model> models_;
  std::vector<std::pair<torch::nn::Module*, bool>> modes_;
  std::vector<TargetNetwork> target_networks_;
  std::vector<ParameterEntry> entries_;
  std::vector<at::Tensor> parameter_views_;  // the models' own tensors, in the order of entries_
  std::vector<BatchNorm> norms_;
  std::vector<NamedTensor> buffers_, replicated_;
  int64_t parameter_floats_ = 0, statistic_floats_ = 0, recipe_floats_ = 0;
  at::Tensor flat_, running_;
  std::vector<at::Tensor> optimizer_, contributions_;
  int bound_ = -1;
  std::vector<ShardArray> shard_states_;
  std::shared_ptr<LayerContext> layers_ = std::make_shared<LayerContext>();
  std::vector<ShardAware*> aware_;
  std::string plain_layer_;
  std::unordered_map<const void*, int64_t> offsets_;  // by tensor
};

}  // namespace tandem
