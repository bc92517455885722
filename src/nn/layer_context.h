// nn/layer_context.h -- what the layers of a model know about the pass that they are in.
//
// A worker runs several of its shards in one pass: the first dimension of every activation then holds the rows of
// `shards` shards, one after the other, the same number each. The layers of this folder give each row the bits that it
// has when its shard runs alone. What adds up over rows (gradients of parameters, statistics) they find for each shard
// apart: the leaves of the sum tree, which they hand to `sums`.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <span>
#include <string>

namespace tandem {

// Takes the leaves: a parameter's gradient of each shard of the pass. On a GPU all of it is queued.
class LeafSums {
 public:
  virtual ~LeafSums() = default;
  // In forward(), for each use of a parameter: one add() for it will come in backward().
  virtual void expect(const at::Tensor& parameter) = 0;
  // [shards, elements of the parameter], float, contiguous, in the order of the parameter's memory. What it is given
  // it may overwrite.
  virtual void add(const at::Tensor& parameter, const at::Tensor& leaves) = 0;
  // What the uses that came before have left, for a layer that changes few elements: it may add to these leaves and
  // hand them over in place of new ones. Undefined: nothing came, or it is not kept.
  virtual at::Tensor so_far(const at::Tensor& parameter) { return {}; }
  // The same for what is no parameter, such as a batch's mean for BatchNorm::running_mean: no expect() before it.
  virtual void add_statistic(const at::Tensor& buffer, const at::Tensor& leaves) = 0;
};

class ShardAware;

// For the comparison of a pass over several shards with passes over one: sees what goes in and out of each layer.
class LayerTrace {
 public:
  virtual ~LayerTrace() = default;
  // `what`: "input", "output", "gradient of the output", "gradient of the input". First dimension = rows.
  virtual void saw(const ShardAware& layer, const char* what, const at::Tensor& rows) = 0;
};

// What the engine sets before each run of a micro-batch; one context per model.
struct MicroBatch {
  bool training = false;  // false: use the running statistics
  double share = 0;       // this micro-batch's part of the update's real rows: the weight of its statistics
  double real = 1;        // the part of this micro-batch's rows that are real (the first ones); 1 with several shards
};

struct LayerContext : MicroBatch {
  int shards = 1;            // in this pass
  int job_shards = 1;        // in all: algorithms are chosen for that many, whatever part of them is here
  LeafSums* sums = nullptr;  // null: gradients of parameters go through autograd, as usual; then `shards` is 1
  LayerTrace* trace = nullptr;
  std::function<void(std::span<double>)> all_reduce;  // sync_bn: replaces the values by their sum over all shards
};

// A layer that can run several shards in one pass.
class ShardAware {
 public:
  virtual ~ShardAware() = default;
  LayerContext& pass() const { return *context_; }
  const std::string& layer_name() const { return name_; }  // in the model: "h.3.attn"
  // Its batched form gave other bits than its shards one by one: it runs them one by one inside the pass.
  bool one_by_one() const { return one_by_one_; }
  void use_one_by_one() { one_by_one_ = true; }
  // By the engine, for every layer of a model.
  void bind(std::shared_ptr<LayerContext> context, std::string name) {
    context_ = std::move(context);
    name_ = std::move(name);
  }

 protected:
  void trace(const char* what, const at::Tensor& rows) const {
    if (context_->trace) context_->trace->saw(*this, what, rows);
  }

 private:
  std::shared_ptr<LayerContext> context_ = std::make_shared<LayerContext>();
  std::string name_ = "a layer";
  bool one_by_one_ = false;
};

}  // namespace tandem
