#include "fleet/snapshot_layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <set>
#include <stdexcept>

#include "base/errors.h"
#include "checkpoint/digest.h"

namespace tandem {

void SnapshotLayout::add(SnapshotTensor tensor) {
  tensor.offset = end_;
  end_ = (end_ + tensor.bytes + kAlign - 1) / kAlign * kAlign;
  if (tensor.shard < 0) {
    if (replicated_end_ != tensor.offset) throw std::logic_error("replicated tensors come first");
    replicated_end_ = end_;
  }
  tensors_.push_back(std::move(tensor));
}

nlohmann::json SnapshotLayout::to_json() const {
  nlohmann::json list = nlohmann::json::array();
  for (const SnapshotTensor& t : tensors_) {
    list.push_back({t.name, dtype_name(t.dtype), t.shape, t.model, t.shard});
    if (!t.aliases.empty()) list.back().push_back(t.aliases);
  }
  return list;
}

SnapshotLayout SnapshotLayout::from_json(const nlohmann::json& json) {
  SnapshotLayout layout;
  for (const nlohmann::json& item : json) {
    SnapshotTensor t{item.at(0), {}, item.at(2), item.at(3), item.at(4)};
    const auto dtype = dtype_from_name(item.at(1).get<std::string>());
    if (!dtype) throw std::runtime_error("no such type of tensor");
    t.dtype = *dtype;
    t.bytes = dtype_size(*dtype);
    if (item.size() > 5) t.aliases = item.at(5).get<std::vector<std::string>>();
    for (const int64_t n : t.shape) {
      if (n < 0 || n > (int64_t{1} << 40)) throw std::runtime_error("no such shape");
      t.bytes *= static_cast<uint64_t>(n);
    }
    layout.add(std::move(t));
  }
  return layout;
}

void SnapshotLayout::put_scalars(std::span<std::byte> block, const nlohmann::json& scalars) {
  const std::string text = scalars.dump();
  const uint64_t length = text.size();
  if (length + sizeof length > kScalarBytes) throw std::logic_error("too many scalars for a snapshot");
  std::memcpy(block.data(), &length, sizeof length);
  std::memcpy(block.data() + sizeof length, text.data(), length);
}

nlohmann::json SnapshotLayout::get_scalars(std::span<const std::byte> block) {
  uint64_t length = 0;
  std::memcpy(&length, block.data(), sizeof length);
  if (length > kScalarBytes - sizeof length) throw std::runtime_error("a snapshot's scalars are damaged");
  const char* text = reinterpret_cast<const char*>(block.data()) + sizeof length;
  return nlohmann::json::parse(text, text + length);
}

void SnapshotLayout::describe(std::span<const std::byte> block, CheckpointContents& contents) const {
  for (const SnapshotTensor& t : tensors_) {
    (t.model ? contents.model : contents.state).push_back({t.name, t.dtype, t.shape, block.subspan(t.offset, t.bytes)});
    for (const std::string& alias : t.aliases) contents.aliases[alias] = t.name;
  }
}

namespace {

// A tied parameter is stored once, under any one of its names.
const TensorView* find_by_any_name(const SafetensorsFile& file, const SnapshotTensor& tensor,
                                   std::set<std::string>& known) {
  const TensorView* found = file.find(tensor.name);
  for (auto alias = tensor.aliases.begin(); !found && alias != tensor.aliases.end(); ++alias)
    if ((found = file.find(*alias))) known.insert(*alias);
  return found;
}

}  // namespace

void SnapshotLayout::fill(std::span<std::byte> block, const LoadedCheckpoint& checkpoint) const {
  const std::string where = checkpoint.dir.filename().string();
  const std::string todo = "resume with the program version and recipe that wrote it (manifest.json names them)";
  // A run may have been started without a state to roll back to (nan.rollback_every = 0): none is then restored.
  const nlohmann::json update = checkpoint.manifest.scalars.value("update", nlohmann::json::object());
  const bool kept = update.value("kept_updates", int64_t{-1}) >= 0;
  std::set<std::string> known;
  for (const SnapshotTensor& t : tensors_) {
    known.insert(t.name);
    const SafetensorsFile& file = t.model ? checkpoint.model : checkpoint.state;
    const std::string name = where + (t.model ? "/model.safetensors" : "/state.safetensors");
    const TensorView* found = find_by_any_name(file, t, known);
    if (!found && !kept && t.name.starts_with("kept.")) continue;
    if (!found)
      throw CheckpointError(fmt::format("{} has no tensor '{}'", name, t.name), "the model or the recipe has changed",
                            todo);
    if (found->dtype != t.dtype || found->shape != t.shape)
      throw CheckpointError(fmt::format("{}: tensor '{}' has another type or shape", name, t.name),
                            fmt::format("found {} [{}], the recipe has {} [{}]", dtype_name(found->dtype),
                                        fmt::join(found->shape, ", "), dtype_name(t.dtype), fmt::join(t.shape, ", ")),
                            todo);
    std::memcpy(block.data() + t.offset, found->bytes.data(), t.bytes);
  }
  for (const SafetensorsFile* file : {&checkpoint.model, &checkpoint.state})
    for (const TensorView& t : file->tensors())
      if (!known.contains(t.name))
        throw CheckpointError(fmt::format("{} has a tensor '{}' that this recipe does not know", where, t.name),
                              "what it holds would be lost, and the run would not be the same",
                              "resume with the program version that wrote it (manifest.json names it)");
  if (!update.contains("updates"))
    throw CheckpointError(fmt::format("{}: manifest.json lacks the state of the update", where), "it is not whole",
                          "use an earlier checkpoint");
  nlohmann::json scalars = checkpoint.manifest.scalars;
  scalars["step"] = checkpoint.manifest.step;
  put_scalars(block, scalars);
}

std::string SnapshotLayout::digest(std::span<const std::byte> block) const {
  CheckpointContents contents;
  describe(block, contents);
  return weights_digest(contents.model);
}

}  // namespace tandem
