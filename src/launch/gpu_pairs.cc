#include "launch/gpu_pairs.h"

#include <fmt/format.h>

#include <utility>

namespace tandem {

void GpuPairs::begin(uint64_t generation) {
  generation_ = generation;
  if (by_reader_.empty()) last_.clear();  // the one before had none: the same line is news again
  by_reader_.clear();
}

std::optional<std::string> GpuPairs::reported(int rank, const nlohmann::json& body, size_t members) {
  const uint64_t generation = body.at("generation");
  if (generation < generation_) return std::nullopt;
  if (std::exchange(generation_, generation) != generation) by_reader_.clear();
  by_reader_[rank] = body.at("pairs");
  if (by_reader_.size() < members) return std::nullopt;
  std::string now = line();
  if (std::exchange(last_, now) == now) return std::nullopt;
  return now;
}

std::string GpuPairs::line() const {
  constexpr int kMostReasons = 3;
  int direct = 0, by_host = 0;
  std::string reasons;
  for (const auto& [reader, pairs] : by_reader_)
    for (const nlohmann::json& pair : pairs) {
      ++(pair.at("gpu").get<bool>() ? direct : by_host);
      if (pair.at("gpu").get<bool>() || by_host > kMostReasons) continue;
      reasons += fmt::format("{}rank {} of rank {}: {}", reasons.empty() ? "" : "; ", reader, pair.at("of").get<int>(),
                             pair.at("why").get<std::string>());
    }
  if (by_host > kMostReasons) reasons += "; ...";
  const std::string how = by_host == 0 ? "in each other's memory"
                          : direct == 0
                              ? "through pinned host memory"
                              : fmt::format("{} of {} ways through pinned host memory", by_host, direct + by_host);
  return fmt::format("{} workers sum by kernels, {}{}", by_reader_.size(), how,
                     reasons.empty() ? "" : fmt::format(" ({})", reasons));
}

nlohmann::json GpuPairs::to_json() const {
  nlohmann::json all = nlohmann::json::array();
  for (const auto& [reader, pairs] : by_reader_)
    for (const nlohmann::json& pair : pairs) {
      const bool gpu = pair.at("gpu");
      all.push_back(
          {{"reader", reader}, {"of", pair.at("of")}, {"through", gpu ? "GPU memory" : "pinned host memory"}});
      if (!gpu) all.back()["why"] = pair.at("why");
    }
  return all;
}

}  // namespace tandem
