#include "nn/tie_weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include "base/errors.h"

namespace tandem {
namespace {

// torch registers a parameter once and has no way to replace it; the list is open to derived classes.
struct OpenModule : torch::nn::Module {
  static auto list() { return &OpenModule::parameters_; }
};

}  // namespace

void replace_parameter(torch::nn::Module& module, const std::string& name, const at::Tensor& tensor) {
  torch::OrderedDict<std::string, at::Tensor>& list = module.*OpenModule::list();
  at::Tensor* const registered = list.find(name);
  if (!registered || !tensor.defined())
    throw ConfigError(fmt::format("no parameter '{}' to tie in {}", name, module.name()),
                      registered ? "the other layer has none" : "it has registered none of this name",
                      "tie layers that both have it");
  if (registered->sizes() != tensor.sizes())
    throw ConfigError(fmt::format("parameter '{}' of {} can't be tied: it is [{}], the other [{}]", name, module.name(),
                                  fmt::join(registered->sizes(), ", "), fmt::join(tensor.sizes(), ", ")),
                      "tied weights are one tensor",
                      "give both layers the same shape: Linear(in, out) has a weight [out, in]");
  *registered = tensor;
}

}  // namespace tandem
