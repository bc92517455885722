#include "shard_models.h"

#include <torch/torch.h>

#include "resnet.h"
#include "shard_layers.h"
#include "torch_layers.h"
#include "transformer.h"

namespace tandem {

std::shared_ptr<ShardModel> make_transformer(const TransformerOptions& options) {
  if (options.plain) return std::make_shared<Transformer<TorchLayers>>(options);
  return std::make_shared<Transformer<ShardLayers>>(options);
}

std::shared_ptr<ShardModel> make_resnet(const ResNetOptions& options) {
  if (options.plain) return std::make_shared<ResNet<TorchLayers>>(options);
  return std::make_shared<ResNet<ShardLayers>>(options);
}

TransformerOptions gpt2_small() {
  TransformerOptions o;
  o.layers = 12;
  o.width = 768;
  o.heads = 12;
  o.vocabulary = 50304;
  o.dropout = 0;
  return o;
}

ResNetOptions resnet18() { return {}; }

ResNetOptions resnet50() {
  ResNetOptions o;
  o.bottleneck = true;
  o.blocks = {3, 4, 6, 3};
  o.classes = 1000;
  return o;
}

}  // namespace tandem
