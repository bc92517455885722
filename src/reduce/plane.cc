#include "reduce/plane.h"

#include <fmt/format.h>

#include <cstdlib>
#include <utility>

#include "base/errors.h"

namespace tandem {
namespace {

constexpr std::pair<std::string_view, Plane> kPlanes[] = {
    {"auto", Plane::kAuto}, {"host", Plane::kHost},     {"nccl", Plane::kNccl},
    {"peer", Plane::kPeer}, {"pinned", Plane::kPinned}, {"auto-with-peers", Plane::kAutoWithPeers}};

}  // namespace

Plane plane_asked_for() {
  const char* asked = std::getenv("TANDEM_PLANE");
  if (!asked || !*asked) return kDefaultPlane;
  for (const auto& [name, plane] : kPlanes)
    if (name == asked) return plane;
  throw ConfigError(fmt::format("TANDEM_PLANE={} is not known", asked),
                    "it is auto, auto-with-peers, host, nccl, peer or pinned", "set one of these, or leave it out");
}

std::string_view name_of(Plane plane) {
  for (const auto& [name, p] : kPlanes)
    if (p == plane) return name;
  return "?";
}

}  // namespace tandem
