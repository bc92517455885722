#include "engine/data_plane.h"

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

DataPlane::DataPlane(Channel& channel, std::function<int64_t()> step) {
  const char* asked = std::getenv("TANDEM_PLANE");
  const std::string_view plane = asked && *asked ? asked : "auto";
  if (plane != "auto" && plane != "host" && plane != "nccl")
    throw ConfigError(fmt::format("TANDEM_PLANE={} is not known", plane), "it is auto, host or nccl",
                      "set one of these, or leave it out");
  const char* library = std::getenv("TANDEM_NCCL");
  required_ = plane == "nccl";
  if (required_ && !gpu() && !library)
    throw ConfigError("TANDEM_PLANE=nccl on a CPU worker", "NCCL carries data between GPUs",
                      "leave TANDEM_PLANE out, or use `--devices cuda`");
  if (plane == "host" || (!gpu() && !library)) return;
  // Members of one machine: nothing need listen on any other interface. What the user has set stays.
  setenv("NCCL_SOCKET_IFNAME", "=lo", 0);
  setenv("NCCL_RAS_ENABLE", "0", 0);
  NcclPlane::Options options;
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
  nccl_ = std::make_unique<NcclPlane>(device(), std::move(stream), std::move(options));
}

namespace {

NcclMembers members_of(int shards, const Order& order, int me) {
  NcclMembers members{.shards = shards, .ranges = {}, .ranks = {}, .me = me, .generation = order.generation};
  for (const Assignment& member : order.members) {
    members.ranges.push_back(member.range);
    members.ranks.push_back(member.rank);
  }
  return members;
}

}  // namespace

void DataPlane::make_way(int shards, const Order& order, int me) {
  if (nccl_) nccl_->take_over(members_of(shards, order, me));
}

void DataPlane::drop() {
  if (nccl_) nccl_->drop();
}

std::unique_ptr<Combine> DataPlane::around(std::unique_ptr<Combine> combine, int shards, const Order& order, int me,
                                           bool one_machine, const Watch& watch) {
  const ShardRange mine = order.members.at(static_cast<size_t>(me)).range;
  if (required_ && !one_machine)
    throw ConfigError("TANDEM_PLANE=nccl with ranks of another launcher", "such ranks meet over Gloo, GPUs too",
                      "leave TANDEM_PLANE out, or start `tandem train` by itself");
  if (!nccl_ || !one_machine) return for_this_device(shards, mine, std::move(combine));
  return nccl_->combine(members_of(shards, order, me), std::move(combine), watch);
}

}  // namespace tandem
