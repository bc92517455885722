// checkpoint/safetensors_header.h -- the JSON header of a safetensors file, checked against the bytes it describes.
//
//   8 bytes   length of the header, little-endian
//   header    {"__metadata__": {"key": "text"}, "<name>": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, ...}
//   data      the tensors, without holes
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/dtype.h"

namespace tandem {

inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;  // the format's own bound
// Ours: beyond any model we know, and small enough that a hostile header cannot exhaust the memory.
inline constexpr std::size_t kMaxTensors = 100'000;
inline constexpr std::size_t kMaxRank = 32;
inline constexpr std::size_t kMaxMetadata = 10'000;
inline constexpr std::size_t kMaxHeaderToken = 4'000'000;

struct SafetensorsHeader {
  std::vector<TensorView> tensors;     // in the order of their bytes; the views are still empty
  std::vector<std::uint64_t> offsets;  // one more than tensors: tensor i is [offsets[i], offsets[i + 1]) of the data
  std::map<std::string, std::string> metadata;
};

// `text` is the header alone, `data_size` the bytes that follow it. Throws CheckpointError "<source>: <what is wrong>".
SafetensorsHeader parse_safetensors_header(std::string_view text, std::uint64_t data_size, const std::string& source);

}  // namespace tandem
