// tools/bench/bench_baseline.cc -- `tandem bench --baselines`: PyTorch's usual loop over the same net, optimizer and
// batch, in Python.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "command/child_output.h"
#include "tools/bench/bench.h"

namespace tandem {
namespace {

constexpr const char* kOpening = R"py(
import json, sys, time
batch, seconds, cuda = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3] == "1"
try:
    import torch
except ImportError as error:
    print(json.dumps({"reason": str(error) + "; activate an environment that has torch"})); sys.exit(0)
import torch.nn as nn, torch.nn.functional as F
torch.manual_seed(1)
torch.set_num_threads(1)
device = "cuda" if cuda else "cpu"

def block(a, b, norm):
    return [nn.Linear(a, b), norm(b), nn.ReLU(), nn.Dropout(0.1)]
)py";

// Between the two: the recipe's own, which defines step().
constexpr const char* kTiming = R"py(
def wait():
    if cuda: torch.cuda.synchronize()
for _ in range(10): step()
wait()
begin = time.perf_counter(); steps = 0
while time.perf_counter() - begin < seconds:
    for _ in range(5): step()
    wait(); steps += 5
print(json.dumps({"samples_per_s": steps * batch / (time.perf_counter() - begin), "torch": torch.__version__}))
)py";

std::string interpreter() {
  std::error_code none;
  if (const char* active = std::getenv("VIRTUAL_ENV"); active && *active) return std::string(active) + "/bin/python3";
  const auto self = std::filesystem::read_symlink("/proc/self/exe", none).parent_path();
  for (const auto& place : {self / "../../.venv/bin/python3", std::filesystem::path(".venv/bin/python3")})
    if (access(place.c_str(), X_OK) == 0) return place.string();
  return "python3";
}

}  // namespace

BaselineAnswer run_baseline(const RecipeInfo& recipe, int64_t batch, double seconds, bool cuda) {
  if (recipe.baseline.empty()) return {std::nullopt, "nobody wrote one for " + recipe.name};
  const std::string python = interpreter(), program = kOpening + recipe.baseline + kTiming;
  const ChildOutput said =
      run_child({.words = {python, "-c", program, std::to_string(batch), fmt::format("{}", seconds), cuda ? "1" : "0"},
                 .environment = {{"OMP_NUM_THREADS", "1"}},
                 .silent = true});
  const auto output = nlohmann::json::parse(said.text, nullptr, false);
  if (output.is_object() && output.contains("samples_per_s") && output["samples_per_s"].is_number())
    return {output["samples_per_s"].get<double>(), ""};
  if (output.is_object() && output.contains("reason") && output["reason"].is_string())
    return {std::nullopt, output["reason"].get<std::string>()};
  return {std::nullopt,
          fmt::format("{} could not run it ({}); install torch there, or activate an environment that has it", python,
                      said.ending())};
}

}  // namespace tandem
