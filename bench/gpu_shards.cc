// bench/gpu_shards.cc -- what it costs to divide an update into shards: the same update as one shard, as eight in one
// pass, and as eight one by one. bench/gpu_shards_baseline.py sets PyTorch beside it.
//
//   gpu_shards [gpt2|resnet50] [--quick]       blocks of steps by turns; the median step of each way
//   gpu_shards gpt2 --profile [WAY]            the kernels of one step, longest first: one, batched or serial
//   gpu_shards gpt2 --memory [WAY]             the GPU's memory that a run takes at most, with the CUDA context
//   gpu_shards gpt2 --serve                    runs what it reads: "batched 20" -> 20 steps, one JSON line with their
//   ms
//
// gpt2: GPT-2 small (12 layers of 768, vocabulary 50,304), 32 sequences of 1,024 tokens. resnet50: 256 images of 224 x
// 224, channels last. Both of the layers of src/nn, AdamW, bf16, without dropout; the data stays on the GPU. A worker
// with every shard. It needs a GPU and libtandem_cuda.so beside it.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/errors.h"
#include "engine/determinism.h"
#include "engine/gpu_device.h"
#include "engine/train_loop.h"
#include "kernel_times.h"
#include "shard_recipe.h"

namespace tandem {
namespace {

constexpr int64_t kBenchShards = 8;
const std::vector<std::string> kWays{"one", "batched", "serial"};

struct BenchSize {
  int64_t batch = 0, tokens = 0, side = 0;  // 0: those of the head of this file
};

ShardSettings bench_settings(const std::string& model, const std::string& way, const BenchSize& size) {
  ShardSettings s;
  const bool text = model == "gpt2";
  s.model = text ? "gpt2-small" : "resnet50";
  s.batch_size = size.batch ? size.batch : text ? 32 : 256;
  s.tokens = size.tokens;
  s.side = size.side ? size.side : 224;
  s.samples = 4 * s.batch_size;
  s.resident = true;
  s.dropout = 0;
  s.shards = way == "one" ? 1 : kBenchShards;
  s.shards_per_pass = way == "serial" ? 1 : 0;
  s.precision = "bf16";
  s.optimizer.learning_rate = 1e-4;
  s.clip_norm = 0;
  s.nan.rollback_every = 0;
  return s;
}

// One training, made when it is first asked for.
class BenchRun {
 public:
  BenchRun(const std::string& model, std::string way, const BenchSize& size)
      : way_(std::move(way)), settings_(bench_settings(model, way_, size)) {}

  double step() {
    if (!loop_) begin();
    const double start = monotonic_seconds();
    const StepRecord record = loop_->step();
    device().wait();
    const double ms = 1e3 * (monotonic_seconds() - start);
    loss_ = record.loss;
    for (const std::string& note : loop_->take_notes(true))
      fmt::print(stderr, "{}, step {}: {}\n", way_, loop_->steps_done(), note);
    return ms;
  }
  std::vector<double> steps(int count) {
    std::vector<double> ms;
    for (int i = 0; i < count; ++i) ms.push_back(step());
    return ms;
  }
  double loss() const { return loss_; }

 private:
  void begin() {
    loop_ = std::make_unique<TrainLoop>(settings_, make_shard_recipe(settings_),
                                        ShardPlan::balance(static_cast<int>(settings_.shards), std::vector{1.0}));
  }
  std::string way_;
  ShardSettings settings_;
  std::unique_ptr<TrainLoop> loop_;
  double loss_ = 0;
};

double middle(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

constexpr int kWarmUp = 12;  // captured and compared by then

class ShardBench {
 public:
  ShardBench(std::string model, const BenchSize& size) : model_(std::move(model)) {
    for (const std::string& way : kWays) runs_.emplace(way, std::make_unique<BenchRun>(model_, way, size));
  }

  int by_turns(bool quick) {
    for (const std::string& way : kWays) runs_.at(way)->steps(kWarmUp);
    std::map<std::string, std::vector<double>> blocks;
    for (int block = 0; block < (quick ? 3 : 7); ++block)
      for (const std::string& way : kWays) {
        runs_.at(way)->steps(2);  // the others' memory is out of the caches, the clock is up
        blocks[way].push_back(middle(runs_.at(way)->steps(quick ? 8 : 20)));
      }
    const double one = middle(blocks["one"]), batched = middle(blocks["batched"]), serial = middle(blocks["serial"]);
    fmt::print(
        "{{\"part\": \"shards\", \"model\": \"{}\", \"one_ms\": {:.2f}, \"batched_ms\": {:.2f}, \"serial_ms\": {:.2f}, "
        "\"batched_of_one\": {:.3f}, \"serial_of_one\": {:.3f}, \"same_loss\": {}}}\n",
        model_, one, batched, serial, one / batched, one / serial,
        runs_.at("batched")->loss() == runs_.at("serial")->loss());
    return runs_.at("batched")->loss() == runs_.at("serial")->loss() ? 0 : 1;
  }

  int profile(const std::string& way) {
    kernel_times([] {});
    runs_.at(way)->steps(kWarmUp);
    const double ms = middle(runs_.at(way)->steps(8));
    const auto kernels = kernel_times([&] { runs_.at(way)->step(); });
    fmt::print("{} {}: {:.2f} ms a step, {}", model_, way, ms, kernel_table(kernels));
    return kernels.empty() ? 1 : 0;
  }

  int memory(const std::string& way) {
    runs_.at(way)->steps(kWarmUp + 8);
    fmt::print("{{\"part\": \"memory\", \"model\": \"{}\", \"way\": \"{}\", \"peak_bytes\": {}}}\n", model_, way,
               gpu()->memory().peak_bytes);
    return 0;
  }

  int serve() {
    std::string line;
    while (std::getline(std::cin, line)) {
      std::istringstream words(line);
      std::string way;
      int count = 0;
      words >> way >> count;
      if (!runs_.contains(way) || count < 1) {
        fmt::print(stderr, "not understood: '{}'; a way ({}) and a number of steps are\n", line,
                   fmt::join(kWays, ", "));
        return 2;
      }
      const std::vector<double> ms = runs_.at(way)->steps(count);
      fmt::print("{{\"way\": \"{}\", \"loss\": {:.6f}, \"ms\": [{:.3f}]}}\n", way, runs_.at(way)->loss(),
                 fmt::join(ms, ", "));
      std::fflush(stdout);
    }
    return 0;
  }

 private:
  std::string model_;
  std::map<std::string, std::unique_ptr<BenchRun>> runs_;
};

struct BenchArguments {
  std::vector<std::string> models;
  std::string profile, memory;  // of which way
  bool quick = false, serve = false, good = true;
  BenchSize size;
};

BenchArguments read_arguments(int argc, char** argv) {
  BenchArguments a;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i], next = i + 1 < argc ? argv[i + 1] : "";
    const std::map<std::string, int64_t*> numbers{
        {"--batch", &a.size.batch}, {"--tokens", &a.size.tokens}, {"--side", &a.size.side}};
    if (word == "gpt2" || word == "resnet50")
      a.models.push_back(word);
    else if (word == "--quick")
      a.quick = true;
    else if (word == "--serve")
      a.serve = true;
    else if (word == "--profile" || word == "--memory")
      (word == "--profile" ? a.profile : a.memory) = std::ranges::count(kWays, next) > 0 ? (++i, next) : "batched";
    else if (numbers.contains(word) && std::atoll(next.c_str()) > 0)
      *numbers.at(word) = std::atoll(argv[++i]);
    else
      a.good = false;
  }
  a.good = a.good && (!a.serve || a.models.size() == 1);
  if (a.models.empty()) a.models = {"gpt2", "resnet50"};
  return a;
}

int run_model(const BenchArguments& a, const std::string& model) {
  try {
    open_gpu(0.9);
    set_determinism();
    ShardBench bench(model, a.size);
    if (a.serve) return bench.serve();
    if (!a.memory.empty()) return bench.memory(a.memory);
    return a.profile.empty() ? bench.by_turns(a.quick) : bench.profile(a.profile);
  } catch (const Error& error) {
    const bool no_gpu = !gpu();
    fmt::print("{}: {} ({})\n", no_gpu ? "left out" : model, error.what(), error.why());
    return no_gpu ? 0 : 1;
  }
}

// A process for each model: the memory of one is gone before the other begins.
int in_process(const std::function<int()>& work) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    const int code = work();
    std::fflush(stdout);
    ::_exit(code);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  const tandem::BenchArguments a = tandem::read_arguments(argc, argv);
  if (!a.good) {
    fmt::print(
        stderr,
        "usage: gpu_shards [gpt2|resnet50] [--quick | --profile [one|batched|serial] | --memory [WAY] | --serve]\n"
        "                  [--batch N] [--tokens N] [--side N]\n");
    return 2;
  }
  if (a.models.size() == 1) return tandem::run_model(a, a.models[0]);
  int code = 0;
  for (const std::string& model : a.models)
    code = std::max(code, tandem::in_process([&] { return tandem::run_model(a, model); }));
  return code;
}
