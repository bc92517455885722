// checkpoint/manifest.h -- manifest.json: what a checkpoint is, and the sums that prove its files whole.
//
// The manifest carries a sum of its own, over its raw bytes with the digits of that sum set to zero, so that a flipped
// bit anywhere in it, white space included, is found.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/errors.h"
#include "checkpoint/safetensors.h"

namespace tandem {

inline constexpr int kCheckpointFormat = 2;             // 1: the state is not compressed; read, no longer written
inline constexpr std::size_t kMaxManifest = 8'000'000;  // bytes; room for some 100,000 tensors

// Whole, but written by a newer tandem: no reason to fall back to an older checkpoint and lose work.
class NewerFormatError : public CheckpointError {
 public:
  using CheckpointError::CheckpointError;
};

struct Manifest {
  int format = kCheckpointFormat;
  std::int64_t step = 0;
  std::string run_id, recipe;
  nlohmann::json settings = nlohmann::json::object();  // key -> value, resolved
  int shards = 0;
  std::string kind;
  nlohmann::json versions = nlohmann::json::object();
  nlohmann::json scalars = nlohmann::json::object();  // schedule, scaler, counters; NaN and Inf survive
  std::map<std::string, FileSums> files;              // by the names that they have on the disk

  std::string to_text() const;
  // Throws CheckpointError: damaged, or not ours; NewerFormatError. Needs less than 64 MB beside the text.
  static Manifest parse(std::string_view text);
};

// Puts the right sum into the text of a manifest. For to_text(), and for tests that make odd ones.
std::string seal_manifest(std::string text);

}  // namespace tandem
