// The launcher's other machines: workers that supervisors elsewhere hold for it.
#include <fmt/format.h>
#include <poll.h>

#include "base/clock.h"
#include "base/errors.h"
#include "base/shell_word.h"
#include "launch/launcher_impl.h"
#include "launch/local_transport.h"
#include "launch/net_transport.h"
#include "launch/rendezvous.h"
#include "launch/secret.h"
#include "reduce/plane.h"

namespace tandem {
namespace {

constexpr int kMostMeshFailures = 5;
constexpr double kGatherSeconds = 120;  // for the shards of a snapshot to come from other machines

}  // namespace

std::unique_ptr<Transport> Launcher::make_transport(bool resumed) {
  const JobFacts& job = record_->facts();
  if (!request_.net)
    return std::make_unique<LocalTransport>(ShmShape{.shards = static_cast<int>(request_.settings->shards),
                                                     .max_floats = job.floats,
                                                     .max_counts = job.counts,
                                                     .max_maxima = job.maxima,
                                                     .exchange = job.exchange},
                                            *pool_, plane_uses_peers());
  std::map<int, RemoteWorkerHandle*> hosts;
  for (const auto& [rank, worker] : workers_)
    if (auto* remote = dynamic_cast<RemoteWorkerHandle*>(worker.get())) hosts[rank] = remote;
  const std::string nonce = to_hex(random_bytes(16));
  auto transport = std::make_unique<NetTransport>(
      NetTransport::Options{
          .nonce = nonce, .secret = request_.net->mesh_secret(nonce), .address = request_.net->address()},
      job.layout, *pool_, std::move(hosts));
  if (resumed) transport->filled_here(pool_->base());
  return transport;
}

// A member could not connect to the others. Mostly because one of them died, and a generation without it is on its way;
// otherwise it comes back as one that joins, and all connect anew.
void Launcher::mesh_failed(WorkerHandle& worker, const nlohmann::json& body) {
  if (body.at("generation") != coordinator_->current().generation || !coordinator_->is_member(worker.rank())) return;
  const std::string why = body.at("why");
  record_->telemetry().warn(
      fmt::format("{} could not connect to the others: {}; it is tried again", worker.name(), why));
  if (++mesh_failures_ > kMostMeshFailures) {
    fatal_.emplace(ExitCode::kPeerLost, "the workers can't connect to each other", why,
                   fmt::format("see that no firewall stands between the machines, then `{} resume`", request_.program));
    return;
  }
  carry_out(coordinator_->lost(worker.rank(), std::nullopt));
  carry_out(coordinator_->expect(worker.rank(), worker.device().speed));
  carry_out(coordinator_->arrived(worker.rank()));
}

// A supervisor that is gone takes its part of the snapshots with it, and nobody but its own launcher can start it
// again. What is all here is saved; otherwise the newest checkpoint stands.
void Launcher::watch_hosts() {
  if (!request_.net) return;
  for (const auto& [rank, worker] : workers_) {
    if (const auto signal = worker->take_signal(); signal && stop_code_ == 0) {
      const std::string text =
          fmt::format("stopping: {} was told to; the step is finished and saved first", worker->name());
      if (record_)
        record_->telemetry().say(text);
      else if (!request_.quiet)
        fmt::print(stderr, "{}\n", text);
      stop_with(128 + *signal);
    }
    const std::string why = worker->host_lost();
    if (why.empty() || fatal_ || finished_) continue;
    std::string saved = "its shards since the newest checkpoint are gone with it";
    if (pool_ && pool_->base() >= 0 && transport_->gathered(pool_->base())) {
      try {
        record_->save_last(*pool_);
        saved = fmt::format("step {} is saved", pool_->base_step());
      } catch (const Error& error) {
        saved = error.what();
      }
    }
    fatal_.emplace(ExitCode::kPeerLost, fmt::format("the supervisor of {} is lost", worker->name()),
                   fmt::format("{}; {}", why, saved),
                   fmt::format("start the job again with `{} resume {}`, on any number of machines", request_.program,
                               shell_word(request_.run_dir.string())));
  }
}

// Nothing trains any more, so this may wait.
void Launcher::gather(int buffer) {
  for (const double end = monotonic_seconds() + kGatherSeconds; !transport_->gathered(buffer);) {
    std::vector<pollfd> waits;
    for (const auto& [rank, worker] : workers_) {
      while (worker->receive()) {  // nothing they say matters now; this takes in what they send
      }
      const std::string why = worker->host_lost();
      if (!why.empty() || monotonic_seconds() > end)
        throw Error(
            ExitCode::kPeerLost,
            fmt::format("the snapshot of step {} could not be fetched from {}", pool_->step_of(buffer), worker->name()),
            why.empty() ? "it takes too long" : why,
            fmt::format("go on from the newest checkpoint with `{} resume`", request_.program));
      if (worker->running())
        for (const int fd : worker->poll_fds()) waits.push_back({fd, POLLIN, 0});
    }
    poll(waits.data(), waits.size(), 20);
  }
}

}  // namespace tandem
