#include "rl/dqn/initial_weights.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <cstring>

#include "base/errors.h"
#include "checkpoint/digest.h"
#include "checkpoint/safetensors.h"

namespace tandem {

void copy_weights(torch::nn::Module& module, const SafetensorsFile& model, const std::string& name) {
  at::NoGradGuard no_grad;
  for (auto& item : module.named_parameters()) {
    const TensorView* const from = model.find(item.key());
    const bool fits = from && from->dtype == DType::kF32 && item.value().sizes().vec() == from->shape;
    if (!fits)
      throw CheckpointError(
          fmt::format("the weights of {} do not fit this net", name),
          from ? fmt::format("'{}' has another size", item.key()) : fmt::format("it has no '{}'", item.key()),
          "use the settings of net that it was trained with, or begin without --from");
    at::Tensor host = at::empty(item.value().sizes());
    std::memcpy(host.data_ptr<float>(), from->bytes.data(), from->bytes.size());
    item.value().copy_(host);
  }
}

void load_weights(torch::nn::Module& module, const std::string& file, const std::string& digest) {
  const SafetensorsFile model = SafetensorsFile::read(FileSystem::real(), file);
  if (!digest.empty() && weights_digest(model.tensors()) != digest)
    throw CheckpointError(fmt::format("{} is not what the run began with", file),
                          "its digest is another than the one in recipe.toml",
                          "bring back the file, or begin a new run with --from");
  copy_weights(module, model, file);
}

}  // namespace tandem
