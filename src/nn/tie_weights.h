// nn/tie_weights.h -- one parameter under two names: an output layer that uses the embedding's weights, as in GPT-2.
//
//     tie_weights(head, wte);      // head->weight is wte->weight
// A tied parameter is one: its gradient is the sum over its uses, the optimizer has one state for it, files hold it
// once, under the name that was registered first; their metadata maps the other names to it, as Hugging Face's do.
#pragma once

#include <torch/nn/module.h>

#include <string>

namespace tandem {

// Makes `tensor` the module's parameter of that name. For a layer's own member, see below. Throws ConfigError where
// there is no such parameter, or one of another shape.
void replace_parameter(torch::nn::Module& module, const std::string& name, const at::Tensor& tensor);

// `layer->weight = other->weight` alone would leave the old weight registered, without any use.
template <class Layer, class Other>
void tie_weights(Layer& layer, const Other& other) {
  replace_parameter(*layer, "weight", other->weight);
  layer->weight = other->weight;
}

}  // namespace tandem
