// cli/bench_baseline.cc -- `tandem bench --baselines`: PyTorch's usual loop over the same net, optimizer and batch, in
// Python.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/bench.h"
#include "cli/child_output.h"

namespace tandem {
namespace {

// The whole batch at once, as scripts do it; no priorities, no environments: less work than tandem's step has.
constexpr const char* kProgram = R"py(
import json, sys, time
recipe, batch, seconds, cuda = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4] == "1"
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

if recipe == "tiny":
    net = nn.Sequential(*block(32, 64, nn.BatchNorm1d), *block(64, 64, nn.BatchNorm1d), nn.Linear(64, 10)).to(device)
    data, labels = torch.randn(5100, 32, device=device), torch.randint(10, (5100,), device=device)
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    def step():
        rows = torch.randint(5100, (batch,), device=device)
        loss = F.cross_entropy(net(data[rows] + 0.1 * torch.randn(batch, 32, device=device)), labels[rows])
        optimizer.zero_grad(set_to_none=True); loss.backward(); optimizer.step()
elif recipe == "web-agent":
    class Dueling(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(*block(128, 512, nn.LayerNorm), *block(512, 256, nn.LayerNorm))
            self.value = nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 1))
            self.advantage = nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
        def forward(self, x):
            x = self.body(x); a = self.advantage(x)
            return self.value(x) + a - a.mean(1, keepdim=True)
    net, target = Dueling().to(device), Dueling().to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-4, weight_decay=1e-5)
    rows = 65536
    seen, after = torch.randn(rows, 128, device=device), torch.randn(rows, 128, device=device)
    actions, rewards = torch.randint(10, (rows, 1), device=device), torch.randn(rows, 1, device=device)
    def step():
        at = torch.randint(rows, (batch,), device=device)
        with torch.no_grad():
            best = net(after[at]).argmax(1, keepdim=True)
            wanted = rewards[at] + 0.97 * target(after[at]).gather(1, best)
        loss = F.smooth_l1_loss(net(seen[at]).gather(1, actions[at]), wanted)
        optimizer.zero_grad(set_to_none=True); loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 10); optimizer.step()
        with torch.no_grad():
            for t, p in zip(target.parameters(), net.parameters()): t.lerp_(p, 0.001)
else:
    print(json.dumps({"reason": "nobody wrote one for " + recipe})); sys.exit(0)

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

BaselineAnswer run_baseline(const std::string& recipe, int64_t batch, double seconds, bool cuda) {
  const std::string python = interpreter();
  const ChildOutput said = run_child(
      {.words = {python, "-c", kProgram, recipe, std::to_string(batch), fmt::format("{}", seconds), cuda ? "1" : "0"},
       .environment = {{"OMP_NUM_THREADS", "1"}},
       .silent = true});
  const auto told = nlohmann::json::parse(said.text, nullptr, false);
  if (told.is_object() && told.contains("samples_per_s") && told["samples_per_s"].is_number())
    return {told["samples_per_s"].get<double>(), ""};
  if (told.is_object() && told.contains("reason") && told["reason"].is_string())
    return {std::nullopt, told["reason"].get<std::string>()};
  return {std::nullopt,
          fmt::format("{} could not run it ({}); install torch there, or activate an environment that has it", python,
                      said.ending())};
}

}  // namespace tandem
