// tests/gpu/shard_models.h -- models of the layers of src/nn that run several shards in one pass, and the same models
// of torch's own layers: a transformer in GPT-2's form and in BERT's, a ResNet of basic blocks or bottlenecks.
//
// Both kinds have the same parameters, by name and shape, so initial weights and checkpoints are the same.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <vector>

#include "engine/batch.h"
#include "engine/recipe.h"
#include "nn/init.h"

namespace tandem {

// What a test asks of a model beside its shape.
struct ModelVariant {
  bool plain = false;       // torch's layers, which run shard by shard
  bool mixes_rows = false;  // subtracts the mean over all rows of the pass: a fault that must be found
};

class ShardModel : public torch::nn::Module {
 public:
  virtual at::Tensor forward(const Batch& batch, const ShardContext& context) = 0;  // first dimension = rows
  // [rows]; of a sequence the mean over its labelled tokens.
  virtual at::Tensor row_losses(const at::Tensor& output, const Batch& batch) = 0;
  virtual InitRules initial_weights() const = 0;
};

struct TransformerOptions : ModelVariant {
  int64_t layers = 6, width = 384, heads = 6, vocabulary = 512, tokens = 1024;
  // GPT-2: norms before each part, attention to what came before. Else BERT: norms after it, attention to all tokens of
  // the sentence (data: shard_data.h), a loss of the masked ones alone.
  bool causal = true;
  double dropout = 0.1;
  int64_t head_chunk = 0;  // tokens of a shard whose logits exist at a time; 0: all
};
std::shared_ptr<ShardModel> make_transformer(const TransformerOptions& options);
TransformerOptions gpt2_small();  // 12 layers of 768, 1,024 tokens; vocabulary 50,257 padded to 50,304; no dropout

struct ResNetOptions : ModelVariant {
  bool bottleneck = false;
  std::vector<int64_t> blocks{2, 2, 2, 2};  // of each stage; a stage has twice the channels of the one before
  int64_t width = 64;                       // channels of the first stage
  int64_t classes = 100;
  bool small_pictures = false;  // begins with a 3 x 3 convolution in place of 7 x 7, stride 2 and a pool
};
std::shared_ptr<ShardModel> make_resnet(const ResNetOptions& options);
ResNetOptions resnet18();
ResNetOptions resnet50();

}  // namespace tandem
