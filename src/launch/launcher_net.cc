// The launcher's other machines: workers that supervisors elsewhere hold for it.
#include <fmt/format.h>
#include <poll.h>

#include "base/clock.h"
#include "base/errors.h"
#include "launch/launcher_impl.h"
#include "launch/local_plane.h"
#include "launch/net_plane.h"
#include "launch/rendezvous.h"
#include "launch/secret.h"

namespace tandem {
namespace {

constexpr int kMostMeshFailures = 5;
constexpr double kGatherSeconds = 120;  // for the shards of a snapshot to come from other machines

}  // namespace

std::unique_ptr<Plane> Launcher::make_plane(bool resumed) {
  const JobFacts& job = record_->facts();
  if (!request_.net)
    return std::make_unique<LocalPlane>(ShmShape{.shards = static_cast<int>(request_.settings->shards),
                                                 .max_floats = job.floats,
                                                 .max_counts = job.counts,
                                                 .max_maxima = job.maxima,
                                                 .mail = job.mail},
                                        *pool_);
  std::map<int, RemoteWorkerHandle*> hosts;
  for (const auto& [rank, seat] : workers_)
    if (auto* remote = dynamic_cast<RemoteWorkerHandle*>(seat.get())) hosts[rank] = remote;
  const std::string nonce = to_hex(random_bytes(16));
  auto plane = std::make_unique<NetPlane>(
      NetPlane::Options{.nonce = nonce, .secret = request_.net->mesh_secret(nonce), .address = request_.net->address()},
      job.layout, *pool_, std::move(hosts));
  if (resumed) plane->filled_here(pool_->base());
  return plane;
}

// A member could not connect to the others. Mostly because one of them died, and an order without it is on its way;
// otherwise it comes back as one that joins, and all connect anew.
void Launcher::mesh_failed(WorkerHandle& seat, const nlohmann::json& body) {
  if (body.at("generation") != coordinator_->order().generation || !coordinator_->is_member(seat.rank())) return;
  const std::string why = body.at("why");
  record_->tell().warn(fmt::format("{} could not connect to the others: {}; it is tried again", seat.name(), why));
  if (++mesh_failures_ > kMostMeshFailures) {
    fatal_.emplace(ExitCode::kPeerLost, "the workers can't connect to each other", why,
                   fmt::format("see that no firewall stands between the machines, then `{} resume`", request_.program));
    return;
  }
  carry_out(coordinator_->lost(seat.rank(), std::nullopt));
  carry_out(coordinator_->expect(seat.rank(), seat.device().speed));
  carry_out(coordinator_->arrived(seat.rank()));
}

// A supervisor that is gone takes its part of the snapshots with it, and nobody but its own launcher can start it
// again. What is all here is saved; otherwise the newest checkpoint stands.
void Launcher::watch_hosts() {
  if (!request_.net) return;
  for (const auto& [rank, seat] : workers_) {
    if (const auto signal = seat->take_signal(); signal && stop_code_ == 0) {
      const std::string text =
          fmt::format("stopping: {} was told to; the step is finished and saved first", seat->name());
      if (record_)
        record_->tell().say(text);
      else if (!request_.quiet)
        fmt::print(stderr, "{}\n", text);
      stop_with(128 + *signal);
    }
    const std::string why = seat->host_lost();
    if (why.empty() || fatal_ || finished_) continue;
    std::string saved = "its shards since the newest checkpoint are gone with it";
    if (pool_ && pool_->base() >= 0 && plane_->gathered(pool_->base())) {
      try {
        record_->save_last(*pool_);
        saved = fmt::format("step {} is saved", pool_->base_step());
      } catch (const Error& error) {
        saved = error.what();
      }
    }
    fatal_.emplace(ExitCode::kPeerLost, fmt::format("the supervisor of {} is lost", seat->name()),
                   fmt::format("{}; {}", why, saved),
                   fmt::format("start the job again with `{} resume {}`, on any number of machines", request_.program,
                               request_.run_dir.string()));
  }
}

// Nothing trains any more, so this may wait.
void Launcher::gather(int buffer) {
  for (const double end = monotonic_seconds() + kGatherSeconds; !plane_->gathered(buffer);) {
    std::vector<pollfd> waits;
    for (const auto& [rank, seat] : workers_) {
      while (seat->receive()) {  // nothing they say matters now; this takes in what they send
      }
      const std::string why = seat->host_lost();
      if (!why.empty() || monotonic_seconds() > end)
        throw Error(
            ExitCode::kPeerLost,
            fmt::format("the snapshot of step {} could not be fetched from {}", pool_->step_of(buffer), seat->name()),
            why.empty() ? "it takes too long" : why,
            fmt::format("go on from the newest checkpoint with `{} resume`", request_.program));
      if (seat->running())
        for (const int fd : seat->poll_fds()) waits.push_back({fd, POLLIN, 0});
    }
    poll(waits.data(), waits.size(), 20);
  }
}

}  // namespace tandem
