#include "cli/gpu_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "base/errors.h"
#include "base/printable.h"

namespace tandem {
namespace {

constexpr int64_t kMostGpus = 1024;

std::string joined(const std::string& devices, const std::string& number) {
  return devices + (devices.empty() ? "cuda:" : ",cuda:") + number;
}

}  // namespace

std::string devices_of_count(const std::string& text, const std::string& flag) {
  if (text == "-1" || text == "all") return "cuda:all";
  int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || end != text.data() + text.size() || count < 1 || count > kMostGpus)
    throw ConfigError(fmt::format("{} {}: no number of devices", flag, printable(text)),
                      "it takes the first n CUDA devices, or all of them for -1",
                      fmt::format("write {} 2, or --devices cpu:2 for CPU workers", flag));
  std::string devices;
  for (int64_t i = 0; i < count; ++i) devices = joined(devices, std::to_string(i));
  return devices;
}

std::string devices_of_gpus(const std::string& text) {
  if (text == "0") return "cuda:0";
  const bool list = text.find(',') != std::string::npos;
  if (!list) return devices_of_count(text, "--gpus");
  std::string devices;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    if (end > at) devices = joined(devices, text.substr(at, end - at));
    at = end + 1;
  }
  if (devices.empty())
    throw ConfigError(fmt::format("--gpus {}: no GPU is named", printable(text)), "there are commas only",
                      "write --gpus 4 for the first four, --gpus 0,2 for these two");
  return devices;
}

}  // namespace tandem
