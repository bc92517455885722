#include "engine/card.h"

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

namespace tandem {
namespace {

std::unique_ptr<Card> open;

std::vector<std::filesystem::path> places() {
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  return {program / "libtandem_cuda.so", program / "../lib/libtandem_cuda.so", program / "../bin/libtandem_cuda.so",
          "libtandem_cuda.so"};
}

}  // namespace

Card* card() { return open.get(); }
void use_card(std::unique_ptr<Card> card) { open = std::move(card); }

void open_card(double memory_fraction) {
  std::string refused;
  void* library = nullptr;
  for (const std::filesystem::path& place : places()) {
    if (place.has_parent_path() && !std::filesystem::exists(place)) continue;
    library = dlopen(place.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (library) break;
    const char* words = dlerror();  // the first found tells most
    if (refused.empty()) refused = words ? words : "it can't be loaded";
  }
  using Open = Card* (*)(double, std::string*);
  const auto make = library ? reinterpret_cast<Open>(dlsym(library, "tandem_open_card")) : nullptr;
  if (!make)
    throw ConfigError(
        "this worker can't use a card", refused.empty() ? "libtandem_cuda.so is not there" : refused,
        refused.empty()
            ? "build with nvcc (`make build` on a machine with a card, or `make build CUDA=pypi`), or use "
              "`--devices cpu`"
            : "libtandem_cuda.so is there, but a library that it needs is not, or is of another version: "
              "`make setup` on a machine with a card installs torch's CUDA libraries, `tandem doctor` looks "
              "at the driver; or use `--devices cpu`");
  open.reset(make(memory_fraction, &refused));
  if (!open)
    throw ConfigError("this worker can't use its card", refused,
                      "look at `nvidia-smi`; use another device, or `--devices cpu`");
  use_device(open->device());
  use_device_faults({.hang = [] { card()->hang(); }, .oom = [] { (void)at::empty({int64_t{1} << 46}, here()); }});
}

void take_device(const RecipeSettings& settings) {
  if (const char* name = std::getenv("TANDEM_DEVICE"); name && std::string_view(name) == "cuda")
    open_card(settings.memory_fraction);
  const bool tf32 = settings.precision == "tf32";
  if (tf32 && !card())
    throw ConfigError("precision tf32 on a CPU", "TF32 is a number format of NVIDIA cards",
                      "use --precision fp32 or bf16, or --devices cuda");
  at::globalContext().setAllowTF32CuBLAS(tf32);
  at::globalContext().setAllowTF32CuDNN(tf32);
}

}  // namespace tandem
