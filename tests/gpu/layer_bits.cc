// tests/gpu/layer_bits.cc -- whether each layer of a model gives the same bits in another process, from the same input.
//
//   gpu_layer_bits gpt|bert|resnet --write FILE [precision]      what goes in and out of each layer in one pass, eight
//                                                                shards, forward and backward; bf16 unless said
//   gpu_layer_bits gpt|bert|resnet --against FILE [precision]    the same, compared with the file
//
// Where an output differs from the file's, the file's takes its place, so that a layer is not blamed for the one before
// it. One JSON line for each tensor: the part of its numbers that differ; then those of the gradients' effect on Adam's
// first moment, by parameter. The last line has the number of SMs.
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/errors.h"
#include "engine/determinism.h"
#include "engine/gpu_device.h"
#include "engine/train_loop.h"
#include "shard_recipe.h"

namespace tandem {
namespace {

// The share of elements with other bits.
double differing(const at::Tensor& a, const at::Tensor& b) {
  const int64_t size = a.element_size();
  const auto *x = static_cast<const char*>(a.const_data_ptr()), *y = static_cast<const char*>(b.const_data_ptr());
  int64_t count = 0;
  for (int64_t i = 0; i < a.numel(); ++i)
    count += std::memcmp(x + i * size, y + i * size, static_cast<size_t>(size)) != 0;
  return static_cast<double>(count) / static_cast<double>(std::max<int64_t>(1, a.numel()));
}

at::Tensor on_host(const void* memory, int64_t bytes) {
  at::Tensor copy = at::empty({bytes}, at::kByte);
  device().to_host(copy.data_ptr(), memory, static_cast<size_t>(bytes));
  return copy;
}

// Each tensor as its type, its number of bytes, its bytes.
void write_tensors(const std::string& path, const std::vector<at::Tensor>& tensors) {
  std::ofstream file(path, std::ios::binary);
  for (const at::Tensor& t : tensors) {
    const int64_t head[2]{static_cast<int64_t>(t.scalar_type()), static_cast<int64_t>(t.nbytes())};
    file.write(reinterpret_cast<const char*>(head), sizeof(head));
    file.write(static_cast<const char*>(t.const_data_ptr()), head[1]);
  }
  if (!file.flush())
    throw Error(ExitCode::kFailed, "can't write " + path, "the disk may be full", "choose another place");
}

std::vector<at::Tensor> read_tensors(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<at::Tensor> tensors;
  for (int64_t head[2]; file.read(reinterpret_cast<char*>(head), sizeof(head));) {
    at::Tensor bytes = at::empty({head[1]}, at::kByte);
    if (!file.read(static_cast<char*>(bytes.data_ptr()), head[1])) break;
    tensors.push_back(bytes.view(static_cast<at::ScalarType>(head[0])));
  }
  if (tensors.empty())
    throw Error(ExitCode::kFailed, "can't read " + path, "it is not there, or empty", "write it first");
  return tensors;
}

// Keeps what it sees, or compares it with what another process kept.
class BitTrace : public LayerTrace {
 public:
  explicit BitTrace(std::vector<at::Tensor> wanted) : wanted_(std::move(wanted)) {}

  void saw(const ShardAware& layer, const char* what, const at::Tensor& rows) override {
    const bool dense = rows.is_non_overlapping_and_dense();
    const at::Tensor memory = dense ? rows.detach() : rows.detach().contiguous();
    device().wait();
    // The elements in the order of memory: it is written back the same way.
    at::Tensor found = on_host(memory.const_data_ptr(), static_cast<int64_t>(memory.nbytes()));
    found = found.view(memory.scalar_type());
    const bool differs = report(layer.layer_name(), what, found);
    if (differs && dense) {
      const at::Tensor& want = wanted_[seen_.size() - 1];
      device().from_host(memory.mutable_data_ptr(), want.const_data_ptr(), want.nbytes());
      device().wait();
    }
  }
  // By another name than a layer's; without a file to compare with, it is kept.
  bool report(const std::string& layer, const std::string& what, const at::Tensor& found) {
    const size_t number = seen_.size();
    seen_.push_back(found);
    double differ = 0;
    if (!wanted_.empty()) {
      if (number >= wanted_.size() || wanted_[number].numel() != found.numel())
        throw Error(ExitCode::kFailed, "the file is of another model", "its tensors have other sizes", "write it anew");
      differ = differing(found, wanted_[number]);
    }
    fmt::print("{{\"layer\": \"{}\", \"what\": \"{}\", \"elements\": {}, \"differ\": {}}}\n", layer, what,
               found.numel(), differ);
    return differ > 0;
  }
  const std::vector<at::Tensor>& seen() const { return seen_; }
  const at::Tensor* next_wanted() const { return wanted_.empty() ? nullptr : &wanted_.at(seen_.size()); }

 private:
  std::vector<at::Tensor> wanted_, seen_;
};

ShardSettings traced_settings(const std::string& model, const std::string& precision) {
  ShardSettings s;
  s.model = model;
  s.batch_size = model == "gpt" ? 8 : 64;
  s.precision = precision;
  s.nan.rollback_every = 0;
  return s;
}

// The state that the traced step begins with: that of the file, where there is one.
void begin_with(BitTrace& trace, JobState& state) {
  for (const std::span<float> vector : {state.parameters(), state.optimizer_state(0), state.optimizer_state(1)}) {
    const at::Tensor* const want = trace.next_wanted();
    const at::Tensor mine = on_host(vector.data(), static_cast<int64_t>(vector.size_bytes())).view(at::kFloat);
    if (want) device().from_host(vector.data(), want->const_data_ptr(), vector.size_bytes());
    trace.report("all", "state before", mine);
  }
}

int trace_model(const std::string& model, const std::string& file, bool writes, const std::string& precision) {
  open_gpu(0.9);
  set_determinism();
  std::vector<at::Tensor> wanted;
  if (!writes) wanted = read_tensors(file);
  BitTrace trace(std::move(wanted));
  const ShardSettings settings = traced_settings(model, precision);
  TrainLoop loop(settings, make_shard_recipe(settings), ShardPlan::balance(8, std::vector{1.0}));
  for (int i = 0; i < 3; ++i) loop.step();  // several shards run in one pass by now
  begin_with(trace, loop.state());
  loop.state().layers().trace = &trace;
  loop.step();
  loop.state().layers().trace = nullptr;
  const at::Tensor moment =
      on_host(loop.state().optimizer_state(0).data(), loop.state().parameter_floats() * int64_t{sizeof(float)})
          .view(at::kFloat);
  for (const ParameterEntry& entry : loop.state().parameter_entries())
    trace.report(entry.name, "gradient's effect on Adam's first moment",
                 moment.narrow(0, entry.offset, entry.count).clone());
  if (writes) write_tensors(file, trace.seen());
  fmt::print("{{\"model\": \"{}\", \"tensors\": {}, \"sms\": {}}}\n", model, trace.seen().size(),
             nlohmann::json::parse(gpu()->kind_parts()).at("multiprocessors").get<int>());
  return 0;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  const std::string how = argc > 2 ? argv[2] : "";
  if (argc < 4 || (how != "--write" && how != "--against")) {
    fmt::print(stderr, "usage: gpu_layer_bits gpt|bert|resnet --write|--against FILE [precision]\n");
    return 2;
  }
  ::setenv("TANDEM_GRAPHS", "off", 1);  // a trace looks at every launch
  try {
    return tandem::trace_model(argv[1], argv[3], how == "--write", argc > 4 ? argv[4] : "bf16");
  } catch (const tandem::Error& error) {
    fmt::print(stderr, "error: {}\n  why    {}\n", error.what(), error.why());
    return 1;
  }
}
