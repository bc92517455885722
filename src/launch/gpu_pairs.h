// launch/gpu_pairs.h -- how the GPUs of a run read each other's sums, pair by pair, as its workers tell
// (reduce/peer_link.h): a line for the user once all have told, and the pairs for run.json.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace tandem {

class GpuPairs {
 public:
  // A generation begins, which may combine another way: what was reported of the one before holds no longer.
  void begin(uint64_t generation);
  // `body`: {"pairs": [{"of": rank, "gpu": bool, "why": words}], "generation": g}, from one of `members`. A line, once
  // the last of them has told, unless it is the one before.
  std::optional<std::string> reported(int rank, const nlohmann::json& body, size_t members);
  // [{"reader": 0, "of": 1, "through": "GPU memory"}, {..., "through": "pinned host memory", "why": words}]
  nlohmann::json to_json() const;
  bool empty() const { return by_reader_.empty(); }

 private:
  std::string line() const;

  uint64_t generation_ = 0;
  std::map<int, nlohmann::json> by_reader_;
  std::string last_;
};

}  // namespace tandem
