// nn/sites.h -- the random streams that the engine keeps for itself. A recipe numbers its own sites from 0.
#pragma once

#include <cstdint>

namespace tandem {

inline constexpr uint32_t kFirstReservedSite = 0xFF00;
inline constexpr uint32_t kNamedWeights = 0xFFF9;        // InitRules
inline constexpr uint32_t kSampleAugmentation = 0xFFFA;  // Dataset::load_into
inline constexpr uint32_t kValidation = 0xFFFB;          // Dataset::load of a validation set
inline constexpr uint32_t kAugmentation = 0xFFFC;        // Dataset::load
inline constexpr uint32_t kInitialState = 0xFFFD;        // Recipe::init_shard
inline constexpr uint32_t kInitialWeights = 0xFFFE;
// 0xFFFF: kernels/permutation.h

}  // namespace tandem
