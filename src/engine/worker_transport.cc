#include "engine/worker_transport.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/errors.h"
#include "engine/gpu_device.h"
#include "engine/train_loop.h"

namespace tandem {

WorkerTransport::WorkerTransport(Channel& channel, std::function<int64_t()> step) {
  const char* asked = std::getenv("TANDEM_PLANE");
  const std::string_view transport = asked && *asked ? asked : "auto";
  if (transport != "auto" && transport != "host" && transport != "nccl")
    throw ConfigError(fmt::format("TANDEM_PLANE={} is not known", transport), "it is auto, host or nccl",
                      "set one of these, or leave it out");
  const char* library = std::getenv("TANDEM_NCCL");
  required_ = transport == "nccl";
  if (required_ && !gpu() && !library)
    throw ConfigError("TANDEM_PLANE=nccl on a CPU worker", "NCCL carries data between GPUs",
                      "leave TANDEM_PLANE out, or use `--devices cuda`");
  if (transport == "host" || (!gpu() && !library)) return;
  // Members of one machine: nothing need listen on any other interface. What the user has set stays.
  setenv("NCCL_SOCKET_IFNAME", "=lo", 0);
  setenv("NCCL_RAS_ENABLE", "0", 0);
  NcclTransport::Options options;
  options.library = library ? library : "";
  options.required = options.waits = required_;
  options.note = [&channel, step](const std::string& words) { channel.send({{"note", words}, {"step", step()}}); };
  options.stuck = [&channel](const std::string& why) {
    channel.send({{"failed", "its GPU hangs"}, {"why", why}});
    _exit(static_cast<int>(ExitCode::kFailed));
  };
  options.log = [](const std::string& words) { fmt::print(stderr, "{} info  {}\n", utc_stamp(), words); };
  NcclGpu stream{nullptr, [] { return true; }};
  if (GpuDevice* mine = gpu()) stream = {mine->stream(), [mine] { return mine->idle(); }};
  nccl_ = std::make_unique<NcclTransport>(device(), std::move(stream), std::move(options));
}

namespace {

NcclMembers members_of(int shards, const GenerationStart& current, int me) {
  NcclMembers members{.shards = shards, .ranges = {}, .ranks = {}, .me = me, .generation = current.generation};
  for (const ShardAssignment& member : current.members) {
    members.ranges.push_back(member.range);
    members.ranks.push_back(member.rank);
  }
  return members;
}

}  // namespace

void WorkerTransport::make_way(int shards, const GenerationStart& next, int me) {
  if (nccl_) nccl_->take_over(members_of(shards, next, me));
}

void WorkerTransport::drop() {
  if (nccl_) nccl_->drop();
}

std::unique_ptr<Combine> WorkerTransport::around(std::unique_ptr<Combine> combine, int shards,
                                                 const GenerationStart& current, int me, bool one_machine,
                                                 const Watch& watch) {
  const ShardRange mine = current.members.at(static_cast<size_t>(me)).range;
  if (required_ && !one_machine)
    throw ConfigError("TANDEM_PLANE=nccl with ranks of another launcher", "such ranks combine over Gloo, GPUs too",
                      "leave TANDEM_PLANE out, or start `tandem train` by itself");
  if (!nccl_ || !one_machine) return for_this_device(shards, mine, std::move(combine));
  return nccl_->combine(members_of(shards, current, me), std::move(combine), watch);
}

}  // namespace tandem
