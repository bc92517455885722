#include "engine/gpu_phase.h"

#include <fmt/format.h>

#include <cstdlib>

#include "base/errors.h"

namespace tandem {

std::string eager_asked_for() {
  const char* blocking = std::getenv("CUDA_LAUNCH_BLOCKING");
  const char* asked = std::getenv("TANDEM_GRAPHS");
  const std::string_view graphs = asked && *asked ? asked : "on";
  if (graphs != "on" && graphs != "off")
    throw ConfigError(fmt::format("TANDEM_GRAPHS={} is not known", graphs), "it is on or off", "set one of these");
  if (blocking && std::string_view(blocking) == "1") return "CUDA_LAUNCH_BLOCKING=1";
  if (graphs == "off") return "TANDEM_GRAPHS=off";
  return "";
}

}  // namespace tandem
