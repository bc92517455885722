#include "command/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "base/errors.h"
#include "launch/rank_info.h"
#include "launch/rendezvous.h"
#include "launch/secret.h"
#include "launch/worker_host.h"
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
    return rank_info_in(kEnvironment).has_value();
  } catch (const Error&) {
    return true;
  }
}

int as_rank(const Command& command, int (*act)(const Command&)) {
  const auto info = rank_info_in(kEnvironment, command.arguments.local_rank);
  if (!info) return act(command);
  if (!kHaveGloo) {
    if (info->rank > 0) return static_cast<int>(ExitCode::kUsage);  // rank 0 says it for all
    throw ConfigError(
        fmt::format("this build can't train with {} ranks of {}", info->size, info->by),
        "Gloo, over which workers of several processes talk, was not there when it was built",
        "install libgloo-dev and build again; on one machine `tandem train --devices cpu:N` needs none of it");
  }
  const std::string secret = shared_secret(kEnvironment);
  const double seconds = join_seconds(kEnvironment);
  const Build build{command.context.version, std::make_shared<WorkerProgram>(command.context.worker)};
  if (info->rank > 0) return host_worker({.info = *info, .secret = secret, .build = build, .join_seconds = seconds});
  Gathering ranks(*info, secret, build);
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

std::vector<DeviceSpec> devices_of_ranks(const std::string& text, bool given_here, const Machine& machine,
                                         const RankInfo& info) {
  const auto each = [&](DeviceSpec device) { return std::vector<DeviceSpec>(static_cast<size_t>(info.size), device); };
  const auto numbered = [&](std::vector<DeviceSpec> devices) {
    for (int rank = 0; rank < info.size; ++rank) devices[rank].index = rank;
    return devices;
  };
  if (text.empty() || text == "auto") {
    const std::vector<DeviceSpec> found = parse_devices("auto", machine);
    if (found.front().kind == DeviceSpec::Kind::kCpu) return numbered(each({}));
    const bool own = each_rank_sees_its_own_gpu();
    const int gpus = static_cast<int>(found.size()), local = own ? 0 : info.local_rank;
    if (!own && std::max(info.local_size, info.local_rank + 1) > gpus)
      throw ConfigError(fmt::format("{} ranks on this machine, and {} GPU{}",
                                    std::max(info.local_size, info.local_rank + 1), gpus, gpus == 1 ? "" : "s"),
                        "each rank takes the GPU of its local rank (LOCAL_RANK and the like)",
                        "start one rank for each GPU; or `--devices cuda:0` for one that all share, `--devices cpu`");
    std::vector<DeviceSpec> devices = numbered(each({.kind = DeviceSpec::Kind::kCuda, .by_local_rank = true}));
    devices.front() = found[static_cast<size_t>(local)];
    return devices;
  }
  const auto devices = parse_devices(text, machine);
  if (static_cast<int>(devices.size()) == info.size) return devices;
  if (devices.size() == 1)
    return devices.front().kind == DeviceSpec::Kind::kCpu ? numbered(each(devices.front())) : each(devices.front());
  if (!given_here) return devices_of_ranks("", false, machine, info);
  throw ConfigError(fmt::format("--devices {} names {} devices for {} ranks", text, devices.size(), info.size),
                    "another launcher started one process for each device",
                    "leave --devices out, or name one for each rank");
}

}  // namespace tandem
