// reduce/plane.h -- TANDEM_PLANE: how GPUs of one machine combine. The bits are the same.
#pragma once

#include <string_view>

namespace tandem {

enum class Plane {
  kAuto,    // NCCL; host memory where it refuses
  kHost,    // host memory, by the CPU
  kNccl,    // NCCL or nothing
  kPeer,    // kernels that read the other GPUs' memory, pinned host memory where a pair has no peer access, or nothing
  kPinned,  // the same through pinned host memory for every pair
  kAutoWithPeers,  // as kPeer; NCCL, then host memory, where it can't be
};
// Where nothing is asked for.
inline constexpr Plane kDefaultPlane = Plane::kAuto;

// Throws ConfigError for a word that is none of these.
Plane plane_asked_for();
std::string_view name_of(Plane plane);
inline bool plane_uses_peers() {
  const Plane plane = plane_asked_for();
  return plane == Plane::kPeer || plane == Plane::kPinned || plane == Plane::kAutoWithPeers;
}

}  // namespace tandem
