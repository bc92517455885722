#include "engine/gpu_device.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/errors.h"
#include "base/fault_points.h"
#include "nn/here.h"
#include "nn/kernel_choice.h"

namespace tandem {
namespace {

std::unique_ptr<GpuDevice> open;

std::vector<std::filesystem::path> library_paths() {
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  return {program / "libtandem_cuda.so", program / "../lib/libtandem_cuda.so", program / "../bin/libtandem_cuda.so",
          "libtandem_cuda.so"};
}

}  // namespace

GpuDevice* gpu() { return open.get(); }
void use_gpu(std::unique_ptr<GpuDevice> gpu) { open = std::move(gpu); }

void open_gpu(double memory_fraction) {
  std::string refused;
  void* library = nullptr;
  for (const std::filesystem::path& path : library_paths()) {
    if (path.has_parent_path() && !std::filesystem::exists(path)) continue;
    library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (library) break;
    const char* words = dlerror();  // the first found tells most
    if (refused.empty()) refused = words ? words : "it can't be loaded";
  }
  using Open = GpuDevice* (*)(double, std::string*);
  const auto make = library ? reinterpret_cast<Open>(dlsym(library, "tandem_open_gpu")) : nullptr;
  if (!make)
    throw ConfigError(
        "this worker can't use a GPU", refused.empty() ? "libtandem_cuda.so is not there" : refused,
        refused.empty() ? "build with nvcc (`make build` on a machine with a GPU, or `make build CUDA=pypi`), or use "
                          "`--devices cpu`"
                        : "libtandem_cuda.so is there, but a library that it needs is not, or is of another version: "
                          "`make setup` on a machine with a GPU installs torch's CUDA libraries, `tandem doctor` looks "
                          "at the driver; or use `--devices cpu`");
  open.reset(make(memory_fraction, &refused));
  if (!open)
    throw ConfigError("this worker can't use its GPU", refused,
                      "look at `nvidia-smi`; use another device, or `--devices cpu`");
  use_device(open->device());
  offer_gpu_kernels({&open->kernel_tables(), [] { return gpu()->current_stream(); }});
  use_device_faults({.hang = [] { gpu()->hang(); }, .oom = [] { (void)at::empty({int64_t{1} << 46}, here()); }});
}

namespace {

// For measurements under NVIDIA's MPS: TANDEM_GPU_SHARES="50,25,25" gives rank 0 half of the SMs, ranks 1 and 2 a
// quarter each. Before the first call of CUDA.
void take_share() {
  const char* const asked = std::getenv("TANDEM_GPU_SHARES");
  const char* const rank = std::getenv("TANDEM_RANK");
  if (!asked || !rank) return;
  std::vector<std::string> shares(1);
  for (const char* c = asked; *c; ++c)
    if (*c == ',')
      shares.emplace_back();
    else
      shares.back() += *c;
  const std::string& ours = shares[static_cast<size_t>(std::atoi(rank)) % shares.size()];
  const int percent = std::atoi(ours.c_str());
  if (percent < 1 || percent > 100 || std::to_string(percent) != ours)
    throw ConfigError(fmt::format("TANDEM_GPU_SHARES={} is not known", asked),
                      "it is the percentage of the SMs for each rank, such as 50,25,25", "set it so, or leave it out");
  setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", ours.c_str(), 1);
}

}  // namespace

void take_device(const RecipeSettings& settings) {
  if (const char* name = std::getenv("TANDEM_DEVICE"); name && std::string_view(name) == "cuda") {
    take_share();
    open_gpu(settings.memory_fraction);
  }
  const bool tf32 = settings.precision == "tf32";
  if (tf32 && !gpu())
    throw ConfigError("precision tf32 on a CPU", "TF32 is a number format of NVIDIA GPUs",
                      "use --precision fp32 or bf16, or --devices cuda");
  at::globalContext().setAllowTF32CuBLAS(tf32);
  at::globalContext().setAllowTF32CuDNN(tf32);
}

}  // namespace tandem
