#include "engine/snapshot.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <set>

#include "base/errors.h"
#include "checkpoint/digest.h"

namespace tandem {
namespace {

DType dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return DType::kF32;
    case at::kDouble:
      return DType::kF64;
    case at::kHalf:
      return DType::kF16;
    case at::kBFloat16:
      return DType::kBF16;
    case at::kLong:
      return DType::kI64;
    case at::kInt:
      return DType::kI32;
    case at::kShort:
      return DType::kI16;
    case at::kChar:
      return DType::kI8;
    case at::kByte:
      return DType::kU8;
    case at::kBool:
      return DType::kBool;
    default:
      throw std::logic_error("a tensor of this type can't be checkpointed");
  }
}

TensorView view_of(const std::string& name, const at::Tensor& t) {
  return {name,
          dtype_of(t.scalar_type()),
          t.sizes().vec(),
          {static_cast<const std::byte*>(t.data_ptr()), static_cast<size_t>(t.nbytes())}};
}

std::vector<NamedTensor> state_tensors(TrainLoop& loop) {
  std::vector<NamedTensor> tensors = loop.state().replicated_state();
  auto append = [&](std::vector<NamedTensor> more) {
    for (NamedTensor& t : more) tensors.push_back(std::move(t));
  };
  append(loop.update().kept_state());
  for (int shard = loop.state().mine().first; shard < loop.state().mine().last; ++shard)
    append(loop.state().shard_state(shard));
  return tensors;
}

void fill(const NamedTensor& into, const SafetensorsFile& file, const std::string& where) {
  const TensorView* found = file.find(into.name);
  const std::string todo = "resume with the program version and recipe that wrote it (manifest.json names them)";
  if (!found)
    throw CheckpointError(fmt::format("{} has no tensor '{}'", where, into.name), "the model or the recipe has changed",
                          todo);
  if (found->dtype != dtype_of(into.tensor.scalar_type()) || found->shape != into.tensor.sizes().vec())
    throw CheckpointError(fmt::format("{}: tensor '{}' has another type or shape", where, into.name),
                          fmt::format("found {} [{}], the recipe has [{}]", dtype_name(found->dtype),
                                      fmt::join(found->shape, ", "), fmt::join(into.tensor.sizes().vec(), ", ")),
                          todo);
  at::Tensor& t = const_cast<at::Tensor&>(into.tensor);
  if (!t.is_contiguous()) throw std::logic_error("state tensor '" + into.name + "' is not contiguous");
  std::memcpy(t.data_ptr(), found->bytes.data(), found->bytes.size());
}

}  // namespace

Snapshot take_snapshot(TrainLoop& loop, std::vector<at::Tensor> reuse) {
  at::NoGradGuard no_grad;
  Snapshot snapshot;
  size_t next = 0;
  auto copy = [&](const std::vector<NamedTensor>& tensors, std::vector<TensorView>& views) {
    for (const NamedTensor& t : tensors) {
      at::Tensor held;
      if (next < reuse.size() && reuse[next].sizes() == t.tensor.sizes() && reuse[next].dtype() == t.tensor.dtype())
        held = reuse[next].copy_(t.tensor);
      else
        held =
            at::empty(t.tensor.sizes(), t.tensor.options().memory_format(at::MemoryFormat::Contiguous)).copy_(t.tensor);
      ++next;
      views.push_back(view_of(t.name, held));
      snapshot.held.push_back(std::move(held));
    }
  };
  copy(loop.state().model_tensors(), snapshot.contents.model);
  copy(state_tensors(loop), snapshot.contents.state);
  snapshot.contents.step = loop.steps_done();
  snapshot.contents.shards = loop.state().shards();
  snapshot.contents.scalars["update"] = loop.update().save();
  return snapshot;
}

void restore_snapshot(TrainLoop& loop, const LoadedCheckpoint& checkpoint) {
  at::NoGradGuard no_grad;
  const std::string where = checkpoint.dir.filename().string();
  try {
    loop.update().load(checkpoint.manifest.scalars.at("update"));
  } catch (const nlohmann::json::exception& e) {
    throw CheckpointError(fmt::format("{}: manifest.json lacks the state of the update", where), e.what(),
                          "use an earlier checkpoint");
  }
  const auto fill_all = [&](const std::vector<NamedTensor>& tensors, const SafetensorsFile& file,
                            const std::string& name) {
    for (const NamedTensor& t : tensors) fill(t, file, where + "/" + name);
    if (file.tensors().size() == tensors.size()) return;
    std::set<std::string> known;
    for (const NamedTensor& t : tensors) known.insert(t.name);
    for (const TensorView& t : file.tensors())
      if (!known.contains(t.name))
        throw CheckpointError(
            fmt::format("{}/{} has a tensor '{}' that this recipe does not know", where, name, t.name),
            "what it holds would be lost, and the run would not be the same",
            "resume with the program version that wrote it (manifest.json names it)");
  };
  fill_all(loop.state().model_tensors(), checkpoint.model, "model.safetensors");
  fill_all(state_tensors(loop), checkpoint.state, "state.safetensors");
  loop.set_steps_done(checkpoint.manifest.step);
}

std::string digest_of(TrainLoop& loop) {
  std::vector<TensorView> views;
  std::vector<at::Tensor> held;
  for (const NamedTensor& t : loop.state().model_tensors()) {
    held.push_back(t.tensor.contiguous());
    views.push_back(view_of(t.name, held.back()));
  }
  return weights_digest(views);
}

}  // namespace tandem
