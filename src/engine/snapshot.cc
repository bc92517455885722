#include "engine/snapshot.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/errors.h"
#include "checkpoint/digest.h"
#include "engine/gpu_device.h"
#include "kernels/cpu/state_hash.h"
#include "kernels/device.h"
#include "nn/linear_gemm.h"

namespace tandem {
namespace {

constexpr uint64_t kLarge = 1 << 20;  // below, a call to the kernel costs more than the pages

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

std::vector<NamedTensor> replicated_tensors(TrainLoop& loop) {
  std::vector<NamedTensor> tensors = loop.state().model_tensors();
  for (NamedTensor& t : loop.state().replicated_state()) tensors.push_back(std::move(t));
  for (NamedTensor& t : loop.update().kept_state()) tensors.push_back(std::move(t));
  return tensors;
}

// All of it, whatever the order of its dimensions in memory.
std::byte* memory_of(const NamedTensor& t) {
  if (!t.tensor.is_non_overlapping_and_dense()) throw std::logic_error("state tensor '" + t.name + "' is not dense");
  return static_cast<std::byte*>(t.tensor.data_ptr());
}

SnapshotTensor described_tensor(const NamedTensor& t, bool model, int shard) {
  const DType dtype = dtype_of(t.tensor.scalar_type());
  return {t.name,
          dtype,
          t.tensor.sizes().vec(),
          model,
          shard,
          0,
          static_cast<uint64_t>(t.tensor.numel()) * dtype_size(dtype)};
}

Device& home_of(const at::Tensor& tensor) { return tensor.is_cuda() ? device() : cpu_device(); }

// Calls copy(device, tensor's memory, offset in the block, bytes) for what lies in [begin, end) of the block.
template <class Copy>
void each_stretch(const JobState& state, const std::vector<NamedTensor>& tensors,
                  std::span<const SnapshotTensor> tensors_there, uint64_t begin, uint64_t end, Copy copy) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const uint64_t first = std::max(begin, tensors_there[i].offset),
                   last = std::min(end, tensors_there[i].offset + tensors_there[i].bytes);
    if (first >= last) continue;
    const bool as_it_is = state.in_file_order(tensors[i]);
    const NamedTensor file = as_it_is ? tensors[i] : NamedTensor{tensors[i].name, state.to_file_order(tensors[i])};
    copy(home_of(file.tensor), memory_of(file) + (first - tensors_there[i].offset), first, last - first);
    if (!as_it_is) home_of(file.tensor).wait();  // before the copy goes
  }
}

// All of them, from the block.
void read_tensors_of(const JobState& state, const std::vector<NamedTensor>& tensors,
                     std::span<const SnapshotTensor> tensors_there, std::span<const std::byte> block) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const NamedTensor& t = tensors[i];
    const bool as_it_is = state.in_file_order(t);
    const NamedTensor file = as_it_is ? t : NamedTensor{t.name, at::empty_like(t.tensor, at::MemoryFormat::Contiguous)};
    home_of(file.tensor).from_host(memory_of(file), block.data() + tensors_there[i].offset, tensors_there[i].bytes);
    if (!as_it_is) state.from_file_order(t, file.tensor);
  }
}

// Where the shards of this process lie among the layout's tensors.
std::span<const SnapshotTensor> tensors_of_shard(const SnapshotLayout& layout, size_t replicated, int fields,
                                                 int shard) {
  return std::span(layout.tensors())
      .subspan(replicated + static_cast<size_t>(fields * shard), static_cast<size_t>(fields));
}

}  // namespace

SnapshotLayout snapshot_layout(TrainLoop& loop) {
  SnapshotLayout layout;
  const size_t model = loop.state().model_tensors().size();
  const std::vector<NamedTensor> replicated = replicated_tensors(loop);
  const std::vector<ParameterEntry>& entries = loop.state().parameter_entries();  // the first of the model's tensors
  for (size_t i = 0; i < replicated.size(); ++i) {
    SnapshotTensor tensor = described_tensor(replicated[i], i < model, -1);
    if (i < entries.size()) tensor.aliases = entries[i].aliases;
    layout.add(std::move(tensor));
  }
  for (int shard = 0; shard < loop.state().shards(); ++shard)
    for (const NamedTensor& t : loop.state().shard_shape(shard)) layout.add(described_tensor(t, false, shard));
  return layout;
}

namespace {

// out(device, tensor's memory, offset in the block, bytes)
template <class Out>
void each_of_my_part(TrainLoop& loop, const SnapshotLayout& layout, int me, int members, Out out) {
  const std::vector<NamedTensor> replicated = replicated_tensors(loop);
  const uint64_t begin = SnapshotLayout::kScalarBytes, bytes = layout.replicated_end() - begin;
  each_stretch(loop.state(), replicated, layout.tensors(), begin + bytes * me / members,
               begin + bytes * (me + 1) / members, out);
  for (int shard = loop.state().mine().first; shard < loop.state().mine().last; ++shard) {
    const std::vector<NamedTensor> own = loop.state().shard_state(shard);
    each_stretch(loop.state(), own, tensors_of_shard(layout, replicated.size(), static_cast<int>(own.size()), shard), 0,
                 layout.bytes(), out);
  }
}

// A snapshot has room for so many; said once, since a resume may choose others then.
void put_algorithms(TrainLoop& loop, std::vector<std::string> choices, nlohmann::json& scalars) {
  constexpr size_t kMostChoices = 2000;  // half a megabyte
  if (choices.size() > kMostChoices) {
    static bool said = false;
    if (!std::exchange(said, true))
      loop.note_at_next_step(
          fmt::format("checkpoints have no room for the {} GEMM algorithms of this run ({} fit): on another kind of "
                      "GPU a resume may "
                      "choose others, with other bits",
                      choices.size(), kMostChoices));
  } else if (!choices.empty()) {
    scalars["algorithms"] = std::move(choices);
  }
}

void finish_part(TrainLoop& loop, std::span<std::byte> block, int me, std::optional<uint64_t> handled) {
  device().wait();
  if (me != 0) return;
  nlohmann::json scalars = {
      {"update", loop.update().save()}, {"step", loop.steps_done()}, {"ticket", loop.combine().next_sequence()}};
  if (nlohmann::json validation = loop.validation().save(); !validation.is_null())
    scalars["validation"] = std::move(validation);
  if (handled) scalars["handled"] = *handled;
  if (const std::optional<int64_t> step = loop.equal_at()) scalars["equal_at"] = *step;
  put_algorithms(loop, gemm_choices(), scalars);
  SnapshotLayout::put_scalars(block, scalars);
}

// Those that the run began with. With another library or another kind of GPU the bits differ anyway: the run says so.
void use_recorded_algorithms(TrainLoop& loop, const std::vector<std::string>& recorded) {
  if (!gpu() || recorded.empty()) return;
  try {
    force_gemm_choices(recorded);
  } catch (const ConfigError& error) {
    if (loop.settings().exact == "require") throw;
    loop.note_at_next_step(
        fmt::format("the run goes on with other GEMM algorithms than it began with: {}", error.what()));
  }
}

}  // namespace

void write_part(TrainLoop& loop, const SnapshotLayout& layout, std::span<std::byte> block, int me, int members) {
  each_of_my_part(loop, layout, me, members, [&](Device& device, const std::byte* from, uint64_t at, uint64_t bytes) {
    device.queue_to_host(block.data() + at, from, bytes);
  });
  finish_part(loop, block, me, std::nullopt);
}

uint64_t write_part(TrainLoop& loop, const SnapshotLayout& layout, const SharedMemory& memory, int me, int members,
                    uint64_t handled) {
  uint64_t past_the_mapping = 0;
  each_of_my_part(loop, layout, me, members, [&](Device& device, const std::byte* from, uint64_t at, uint64_t bytes) {
    if (&device != &cpu_device() || bytes < kLarge)
      return device.queue_to_host(memory.bytes().data() + at, from, bytes);
    memory.write(at, {from, bytes});
    past_the_mapping += bytes;
  });
  finish_part(loop, memory.bytes(), me, handled);
  return past_the_mapping;
}

int64_t read_snapshot(TrainLoop& loop, const SnapshotLayout& layout, std::span<const std::byte> block) {
  const nlohmann::json scalars = SnapshotLayout::get_scalars(block);
  loop.update().load(scalars.at("update"));
  loop.validation().load(scalars.value("validation", nlohmann::json()));
  const std::vector<NamedTensor> replicated = replicated_tensors(loop);
  read_tensors_of(loop.state(), replicated, layout.tensors(), block);
  for (int shard = loop.state().mine().first; shard < loop.state().mine().last; ++shard) {
    const std::vector<NamedTensor> own = loop.state().shard_state(shard);
    read_tensors_of(loop.state(), own, tensors_of_shard(layout, replicated.size(), static_cast<int>(own.size()), shard),
                    block);
  }
  use_recorded_algorithms(loop, scalars.value("algorithms", std::vector<std::string>()));
  loop.set_steps_done(scalars.at("step"));
  return scalars.value("ticket", int64_t{0});
}

namespace {

// `known`: the hashes of the last tensors.
uint64_t hash_of(const std::vector<NamedTensor>& tensors, std::span<const uint64_t> known) {
  uint64_t hash = 0;
  const size_t unknown = tensors.size() - known.size();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& t = tensors[i].tensor;
    hash = fold_hash(hash, i < unknown ? home_of(t).state_hash(memory_of(tensors[i]), static_cast<int64_t>(t.nbytes()))
                                       : known[i - unknown]);
  }
  return hash;
}

}  // namespace

uint64_t replicated_hash(TrainLoop& loop) { return hash_of(replicated_tensors(loop), {}); }
uint64_t quick_replicated_hash(TrainLoop& loop) {
  return hash_of(replicated_tensors(loop), loop.update().kept_hashes());
}

std::string digest_of(TrainLoop& loop) {
  std::vector<NamedTensor> tensors = loop.state().model_tensors();
  for (NamedTensor& t : tensors) t.tensor = t.tensor.cpu().contiguous();
  std::vector<TensorView> views;
  for (const NamedTensor& t : tensors)
    views.push_back(
        {t.name, dtype_of(t.tensor.scalar_type()), t.tensor.sizes().vec(), {memory_of(t), t.tensor.nbytes()}});
  return weights_digest(views);
}

Snapshot take_snapshot(TrainLoop& loop) {
  const SnapshotLayout layout = snapshot_layout(loop);
  Snapshot snapshot;
  snapshot.block.resize(layout.bytes());
  write_part(loop, layout, snapshot.block, 0, 1);
  layout.describe(snapshot.block, snapshot.contents);
  snapshot.contents.step = loop.steps_done();
  snapshot.contents.shards = loop.state().shards();
  snapshot.contents.scalars = SnapshotLayout::get_scalars(snapshot.block);
  return snapshot;
}

void restore_snapshot(TrainLoop& loop, const LoadedCheckpoint& checkpoint) {
  const SnapshotLayout layout = snapshot_layout(loop);
  std::vector<std::byte> block(layout.bytes());
  layout.fill(block, checkpoint);
  read_snapshot(loop, layout, block);
}

void flip_a_bit(TrainLoop& loop) {
  float* const weight = loop.state().parameters().data() + loop.state().parameters().size() / 2;
  uint32_t bits = 0;
  device().to_host(&bits, weight, sizeof(bits));
  bits ^= 1u << 20;
  device().from_host(weight, &bits, sizeof(bits));
}

}  // namespace tandem
