// hardware/gpu_models.h -- well-known GPUs and what their makers say of them: for `--compare` and for forecasts of
// hardware that is not here.
//
// Peaks are dense (without sparsity), as data sheets print them. What a GPU can't do, or its maker does not say, is
// absent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

struct GpuModel {
  std::string_view name;     // "RTX 3060 Ti"
  std::string_view maker;    // "NVIDIA", "AMD"
  std::string_view aliases;  // what people type, and what NVML calls it: "3060ti h100sxm ..."
  double memory_gb = 0;      // as sold
  int cores = 0, sms = 0;    // CUDA cores and SMs; stream processors and compute units
  double bandwidth_gb_per_s = 0;
  double power_w = 0;
  double fp32_tflops = 0;
  std::optional<double> tf32_tflops, bf16_tflops, fp16_tflops;
  std::optional<double> nvlink_gb_per_s;  // both directions summed, all links (Infinity Fabric for AMD)
  double pcie_gb_per_s = 0;               // one way: 16 lanes of its generation
  int year = 0;
  std::optional<double> price_usd;      // at launch, where there was a price
  std::optional<double> cc;             // compute capability: 8.6
  std::string why_no_training() const;  // with tandem; empty: it trains
};

const std::vector<GpuModel>& gpu_models();

// What somebody typed ("4090", "RTX 4090", "h100-sxm") or NVML's name ("NVIDIA GeForce RTX 3070"); null if it is no
// GPU of the book. A "3070 Laptop GPU" or "3070 Ti" is another GPU than a 3070.
const GpuModel* find_gpu_model(std::string_view name);
const GpuModel& gpu_or_throw(std::string_view name);  // ConfigError with the nearest names

// "8xH100", "3060ti+2x3070", "2 x 4090, 6000ada": the GPUs one by one. Throws ConfigError; at most 1024 GPUs.
std::vector<const GpuModel*> parse_hardware(std::string_view text);
std::string hardware_name(const std::vector<const GpuModel*>& gpus);  // "RTX 3060 Ti + 2 x RTX 3070"

}  // namespace tandem
