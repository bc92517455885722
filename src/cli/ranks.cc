#include "cli/ranks.h"

#include <fmt/format.h>

#include <cstdlib>
#include <memory>

#include "base/errors.h"
#include "launch/place.h"
#include "launch/rendezvous.h"
#include "launch/seat_host.h"
#include "launch/secret.h"
#include "launch/worker_program.h"

namespace tandem {
namespace {

const Variables kEnvironment = [](const char* name) { return std::getenv(name); };

#ifdef TANDEM_HAVE_GLOO
constexpr bool kHaveGloo = true;
#else
constexpr bool kHaveGloo = false;
#endif

}  // namespace

bool one_of_several() {
  try {
    return place_in(kEnvironment).has_value();
  } catch (const Error&) {
    return true;
  }
}

int as_rank(const Command& command, int (*act)(const Command&)) {
  const auto place = place_in(kEnvironment, command.arguments.local_rank);
  if (!place) return act(command);
  if (!kHaveGloo) {
    if (place->rank > 0) return static_cast<int>(ExitCode::kUsage);  // rank 0 says it for all
    throw ConfigError(
        fmt::format("this build can't train with {} ranks of {}", place->size, place->by),
        "Gloo, over which workers of several processes talk, was not there when it was built",
        "install libgloo-dev and build again; on one machine `tandem train --devices cpu:N` needs none of it");
  }
  const std::string secret = shared_secret(kEnvironment);
  const double seconds = join_seconds(kEnvironment);
  const Build build{command.context.version, std::make_shared<WorkerProgram>(command.context.worker)};
  if (place->rank > 0) return host_seat({.place = *place, .secret = secret, .build = build, .join_seconds = seconds});
  Gathering ranks(*place, secret, build);
  try {
    const int code = act({command.arguments, command.context, command.output, &ranks});
    ranks.dismiss(code);
    return code;
  } catch (const Error& error) {
    ranks.dismiss(static_cast<int>(error.code()));
    throw;
  } catch (...) {
    ranks.dismiss(static_cast<int>(ExitCode::kFailed));
    throw;
  }
}

std::vector<DeviceSpec> devices_of_ranks(const std::string& text, bool given_here, const Machine& machine, int ranks) {
  const auto each = [&](DeviceSpec device) {
    std::vector<DeviceSpec> devices(static_cast<size_t>(ranks), device);
    for (int rank = 0; rank < ranks; ++rank) devices[rank].index = rank;
    return devices;
  };
  if (text.empty() || text == "auto") {
    if (machine.cuda_build && !visible_cards(all_cards(), std::getenv("CUDA_VISIBLE_DEVICES")).empty())
      fmt::print(stderr,
                 "warning: ranks of another launcher train on CPU slots so far; the cards of this machine are used by "
                 "`tandem train` by itself\n");
    return each({});
  }
  const auto devices = parse_devices(text, machine);
  for (const DeviceSpec& device : devices)
    if (device.kind == DeviceSpec::Kind::kCuda)
      throw ConfigError(fmt::format("--devices {} under another launcher", text),
                        "ranks of torchrun, mpirun and the like train on CPU slots so far, not on cards",
                        "start `tandem train` by itself for the cards of one machine, or leave --devices out");
  if (static_cast<int>(devices.size()) == ranks) return devices;
  if (devices.size() == 1) return each(devices.front());
  if (!given_here) return each({});
  throw ConfigError(fmt::format("--devices {} names {} devices for {} ranks", text, devices.size(), ranks),
                    "another launcher started one process for each device",
                    "leave --devices out, or name one for each rank");
}

}  // namespace tandem
