#include "engine/worker_hello.h"

#include <fmt/format.h>
#include <torch/version.h>

#include <cstdlib>
#include <map>
#include <string>

#include "base/errors.h"
#include "engine/kind.h"
#include "fleet/messages.h"
#include "reduce/direct_gpu_link.h"

namespace tandem {

nlohmann::json hello_of(TrainLoop& loop, const SnapshotLayout& layout, int64_t last_step) {
  const ContributionLayout largest = with_link_words(loop.largest_layout());
  nlohmann::json phases = nlohmann::json::array();
  std::map<std::string, int64_t> every;
  for (const Phase& phase : loop.phases()) {
    phases.push_back(phase.name);
    if (phase.every > 1) every[phase.name] = phase.every;
  }
  for (const Phase& phase : loop.validation().phases()) phases.push_back(phase.name);
  return {{"hello", kProtocolVersion},
          {"version", TANDEM_VERSION},
          {"kind", device_kind(loop.recipe().has_own_arithmetic())},
          {"kind_with_model", device_kind(false)},
          {"kind_parts", device_kind_parts(loop.recipe().has_own_arithmetic())},
          {"versions", {{"tandem", TANDEM_VERSION}, {"torch", TORCH_VERSION}, {"compiler", __VERSION__}}},
          {"unit", loop.recipe().unit()},
          {"total_steps", last_step},
          {"layout", layout.to_json()},
          {"phases", phases},
          {"training_phases", loop.phases().size()},
          {"every", every},
          {"floats", largest.floats},
          {"counts", largest.counts},
          {"maxima", largest.maxima},
          {"mail", largest.exchange},
          {"stateful", loop.stateful()},
          {"lockstep_bytes", loop.lockstep() ? loop.state().contribution_floats() * 4 : 0}};
}

int64_t number_from_launcher(const char* name) {
  const char* text = std::getenv(name);
  if (!text)
    throw ConfigError("`work` is not for typing", fmt::format("{} is not set: no launcher started this process", name),
                      "use `train` or `resume`");
  return std::atoll(text);
}

}  // namespace tandem
