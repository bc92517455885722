#include "nn/channels_last.h"

#include <torch/torch.h>

namespace tandem {
namespace {

void lay_channels_last(torch::nn::Module& layer) {
  if (layer.name().find("torch::nn::Conv") == std::string::npos &&
      layer.name().find("tandem::Conv") == std::string::npos)
    return;
  at::Tensor weight = layer.named_parameters(/*recurse=*/false)["weight"];
  if (weight.dim() == 4) weight.set_data(weight.detach().contiguous(at::MemoryFormat::ChannelsLast));
  if (weight.dim() == 5) weight.set_data(weight.detach().contiguous(at::MemoryFormat::ChannelsLast3d));
}

}  // namespace

void use_channels_last(torch::nn::Module& model) {
  at::NoGradGuard no_grad;
  lay_channels_last(model);
  for (const auto& part : model.modules(/*include_self=*/false)) lay_channels_last(*part);  // in constructors too
}

}  // namespace tandem
