#include "launch/membership_requests.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/errors.h"
#include "kernels/peer_sum.h"
#include "reduce/plane.h"

namespace tandem {
namespace {

nlohmann::json refusal(const std::string& what, const std::string& why, const std::string& todo) {
  return {{"error", what}, {"why", why}, {"do", todo}};
}

}  // namespace

std::vector<int> MembershipRequests::present() const {
  std::vector<int> ranks;
  for (const auto& [rank, worker] : workers_)
    if (worker->running() && !worker->leaving) ranks.push_back(rank);
  return ranks;
}

nlohmann::json MembershipRequests::join(const nlohmann::json& body, Coordinator& coordinator, RunRecord& record) {
  const std::string text = body.at("devices");
  const std::vector<DeviceSpec> devices = request_.parse_devices(text);
  const bool cores_named = text.find('/') != std::string::npos;  // by a set of jobs, which knows whose they are
  const int64_t shards = request_.settings->shards, running = static_cast<int64_t>(present().size());
  const int64_t then = running + static_cast<int64_t>(devices.size());
  if (then > shards)
    return refusal(fmt::format("{} more workers would make {} for {} shards", devices.size(), then, shards),
                   "a shard is the smallest piece of work; a worker without one would only wait",
                   fmt::format("add at most {}", shards - running));
  const Plane plane = plane_asked_for();
  if ((plane == Plane::kPeer || plane == Plane::kPinned) && then > kMostPeers)
    return refusal(fmt::format("TANDEM_PLANE={} with {} workers", name_of(plane), then),
                   fmt::format("a kernel sums over {} GPUs at most", kMostPeers),
                   fmt::format("add at most {}, or start the run without TANDEM_PLANE",
                               std::max<int64_t>(0, kMostPeers - running)));
  std::vector<int> ranks;
  for (DeviceSpec device : devices) {
    if (!cores_named) device.core = -1;  // what the others have taken of it is not known here
    WorkerHandle& worker = callbacks_.add_worker(device);
    worker.start(true);
    callbacks_.carry_out(coordinator.expect(worker.rank(), device.speed));
    worker.joining = true;  // it is reported once it works
    ranks.push_back(worker.rank());
  }
  return {{"ranks", ranks}};
}

nlohmann::json MembershipRequests::leave(const nlohmann::json& body, Coordinator& coordinator, RunRecord& record) {
  const int rank = body.at("rank");
  const std::vector<int> there = present();
  if (std::find(there.begin(), there.end(), rank) == there.end())
    return refusal(fmt::format("there is no rank {} in this run", rank),
                   fmt::format("its ranks are {}", fmt::join(there, " ")), "name one of them");
  if (there.size() == 1)
    return refusal(fmt::format("rank {} is the last one", rank), "a run without workers would only wait",
                   "stop the run with Ctrl-C or SIGTERM; it goes on with `tandem resume`");
  record.telemetry().say(fmt::format("{} leaves at the next step boundary", workers_.at(rank)->name()));
  callbacks_.carry_out(coordinator.want_leave(rank));
  return {{"rank", rank}};
}

nlohmann::json MembershipRequests::answer(const nlohmann::json& body, Coordinator* coordinator, RunRecord* record,
                                          bool ending) {
  try {
    const std::string version = body.at("version");
    if (version != TANDEM_VERSION)
      return refusal(fmt::format("the run is of version {}, you are of version {}", TANDEM_VERSION, version),
                     "different versions may compute different bits", "use the program that started the run");
    if (!coordinator || !coordinator->started())
      return refusal("the run is still starting", "its first workers are not up yet", "try again in a moment");
    if (request_.net)
      return refusal("this run's ranks were started by another launcher",
                     "torchrun, mpirun and the like fix their number for the life of a job",
                     "stop it (SIGTERM) and go on with another number of ranks: the bits stay the same");
    if (ending) return refusal("the run is ending", "it is being saved", "go on with `tandem resume`");
    if (body.at("do") == "join") return join(body, *coordinator, *record);
    if (body.at("do") == "leave") return leave(body, *coordinator, *record);
    return refusal("no such request", body.at("do").dump(), "use `join` or `leave`");
  } catch (const Error& error) {
    return refusal(error.what(), error.why(), error.todo());
  } catch (const nlohmann::json::exception& error) {
    return refusal("the request can't be read", error.what(), "use `join` or `leave`");
  }
}

}  // namespace tandem
