#include "engine/worker_transport.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/errors.h"
#include "base/fault_points.h"
#include "engine/gpu_device.h"
#include "engine/train_loop.h"
#include "hardware/cuda_shared_memory.h"
#include "reduce/gpu_combine.h"
#include "reduce/link_chain.h"

namespace tandem {

ShmShape shape_of(TrainLoop& loop, const GenerationStart& start) {
  const ContributionLayout largest = with_link_words(loop.largest_layout());
  ShmShape shape{.shards = loop.state().shards(),
                 .ranges = {},
                 .max_floats = largest.floats,
                 .max_counts = largest.counts,
                 .max_maxima = largest.maxima,
                 .max_joined = loop.longest_joined(),
                 .exchange = largest.exchange};
  for (const ShardAssignment& member : start.members) shape.ranges.push_back(member.range);
  return shape;
}

PeerMeans peer_means(std::span<const Channel> links, int me, const ShmShape& shape, const SharedMemory& segment) {
  PeerMeans means{
      .words = peer_words(shape, segment), .sockets = {}, .most_floats = std::max(shape.max_floats, shape.max_joined)};
  for (const Channel& link : links) means.sockets.push_back(fcntl(link.fd(), F_DUPFD_CLOEXEC, 0));
  means.sockets.insert(means.sockets.begin() + me, -1);
  return means;
}

WorkerTransport::WorkerTransport(Channel& channel, std::function<int64_t()> step)
    : plane_(plane_asked_for()), step_(std::move(step)), channel_(channel) {
  const char* library = std::getenv("TANDEM_NCCL");
  if (plane_ == Plane::kNccl && !gpu() && !library)
    throw ConfigError("TANDEM_PLANE=nccl on a CPU worker", "NCCL carries data between GPUs",
                      "leave TANDEM_PLANE out, or use `--devices cuda`");
  note_ = [this](const std::string& words) { channel_.send({{"note", words}, {"step", step_()}}); };
  log_ = [](const std::string& words) { fmt::print(stderr, "{} info  {}\n", utc_stamp(), words); };
  if (plane_uses_peers()) {
    host_memory_ = host_peer_memory(device());
    if (plane_ != Plane::kPinned) device_memory_ = gpu() ? gpu_peer_memory() : host_peer_memory(device());
    if (plane_ != Plane::kAutoWithPeers) return;
  }
  if (plane_ == Plane::kHost || (!gpu() && !library)) return;
  // Members of one machine: nothing need listen on any other interface. What the user has set stays.
  setenv("NCCL_SOCKET_IFNAME", "=lo", 0);
  setenv("NCCL_RAS_ENABLE", "0", 0);
  NcclTransport::Options options;
  options.library = library ? library : "";
  options.required = options.waits = plane_ == Plane::kNccl;
  options.note = note_;
  options.stuck = [&channel](const std::string& why) {
    channel.send({{"failed", "its GPU hangs"}, {"why", why}});
    _exit(static_cast<int>(ExitCode::kFailed));
  };
  options.log = log_;
  NcclGpu stream{nullptr, [] { return true; }};
  if (GpuDevice* mine = gpu()) stream = {mine->stream(), [mine] { return mine->idle(); }};
  nccl_ = std::make_unique<NcclTransport>(device(), std::move(stream), std::move(options));
}

namespace {

LinkMembers members_of(int shards, const GenerationStart& current, int me) {
  LinkMembers members{.shards = shards, .ranges = {}, .ranks = {}, .me = me, .generation = current.generation};
  for (const ShardAssignment& member : current.members) {
    members.ranges.push_back(member.range);
    members.ranks.push_back(member.rank);
  }
  return members;
}

}  // namespace

void WorkerTransport::make_way(int shards, const GenerationStart& next, int me) {
  if (peers_) std::exchange(peers_, nullptr)->retire();
  if (nccl_) nccl_->take_over(members_of(shards, next, me));
}

void WorkerTransport::drop() {
  if (nccl_) nccl_->drop();
}

std::unique_ptr<Combine> WorkerTransport::around(std::unique_ptr<Combine> combine, PeerMeans means, int shards,
                                                 const GenerationStart& current, int me, bool one_machine,
                                                 const Watch& watch) {
  const ShardRange mine = current.members.at(static_cast<size_t>(me)).range;
  const bool by_peers = plane_ == Plane::kPeer || plane_ == Plane::kPinned;
  if ((by_peers || plane_ == Plane::kNccl) && !one_machine)
    throw ConfigError(fmt::format("TANDEM_PLANE={} with ranks of another launcher", name_of(plane_)),
                      "such ranks combine over Gloo, GPUs too",
                      "leave TANDEM_PLANE out, or start `tandem train` by itself");
  const bool speaks = by_peers || (plane_ == Plane::kAutoWithPeers && me == 0);  // a refusal by each, a note by one
  if (means.sockets.empty() && current.members.size() > 1 && speaks)
    refuse_peers(one_machine ? fmt::format("a kernel sums over {} GPUs at most, and here are {}", kMostPeers,
                                           current.members.size())
                             : "ranks of several launchers combine over Gloo");
  if (!means.sockets.empty())
    return over_peers(std::move(combine), std::move(means), members_of(shards, current, me), watch);
  if (!nccl_ || !one_machine) return for_this_device(shards, mine, std::move(combine));
  return nccl_->combine(members_of(shards, current, me), std::move(combine), watch);
}

void WorkerTransport::refuse_peers(const std::string& why) {
  if (plane_ != Plane::kAutoWithPeers)
    throw ConfigError(fmt::format("the GPUs can't sum by kernels: {}", why),
                      fmt::format("TANDEM_PLANE={} allows nothing else", name_of(plane_)),
                      "leave TANDEM_PLANE out: other ways give the same bits, more slowly");
  const std::string words = fmt::format("the GPUs don't sum by kernels: {}", why);
  if (std::exchange(no_peers_, words) != words) note_(words);
}

std::unique_ptr<Combine> WorkerTransport::over_peers(std::unique_ptr<Combine> combine, PeerMeans means,
                                                     const LinkMembers& members, const Watch& watch) {
  GpuDevice* const ours = gpu();
  const PeerKernels* const kernels = ours ? ours->kernels<PeerKernels>() : &PeerKernels::cpu();
  if (!kernels) throw std::logic_error("libtandem_cuda.so has no kernels for sums over peers");
  if (!ours)  // a kernel's places are where tests make a CPU worker fail
    at_peer_points = [this](PeerPoint point, int) {
      constexpr std::string_view kNames[] = {"", "peer-shown", "peer-published", "peer-added", "peer-reduced", ""};
      if (const std::string_view name = kNames[static_cast<int>(point)]; !name.empty()) fault_point(name, step_());
    };
  PeerSumLink::Gpu with{.device = device(),
                        .kernels = kernels,
                        .stream = ours ? ours->stream() : nullptr,
                        .idle = [ours] { return !ours || ours->idle(); },
                        .blocks = kernels->most_blocks(),
                        .steps = ours != nullptr,
                        .device_memory = device_memory_.get(),
                        .host_memory = host_memory_.get()};
  if (ours && !gpu_runs_processes_at_once()) {
    const char* const name = std::getenv("CUDA_VISIBLE_DEVICES");  // one GPU's own, in a worker
    with.takes_turns = std::hash<std::string_view>()(name ? name : "") | 1;
  }
  PeerSumLink::Options options{.waits = true, .log = log_};
  if (plane_ != Plane::kAutoWithPeers) options.asked_for = fmt::format("TANDEM_PLANE={}", name_of(plane_));
  options.note = [this](const std::string& words) {
    if (std::exchange(no_peers_, words) != words) note_(words);
  };
  options.tell = [this, generation = members.generation](const std::vector<PeerSumLink::Way>& ways) {
    nlohmann::json pairs = nlohmann::json::array();
    for (const auto& [rank, in_gpu, why] : ways) pairs.push_back({{"of", rank}, {"gpu", in_gpu}, {"why", why}});
    channel_.send({{"pairs", std::move(pairs)}, {"generation", generation}});
  };
  if (!ours) options.wait_ns = 1'000'000;  // the kernel's wait is this thread's own
  auto link = std::make_unique<PeerSumLink>(members, *means.words, socket_peer_mail(std::move(means.sockets)),
                                            std::move(with), std::move(options), means.most_floats, watch);
  peers_ = link.get();
  auto chain =
      std::make_unique<LinkChain>(std::move(link), [this, members, &watch]() -> std::unique_ptr<DirectGpuLink> {
        return nccl_ ? nccl_->link(members, watch) : nullptr;
      });
  const ShardRange mine = members.ranges.at(static_cast<size_t>(members.me));
  auto talk = std::make_unique<LinkTalk>(std::move(combine), *chain, mine.size());
  return std::make_unique<GpuCombine>(members.shards, mine, std::move(talk), device(), std::move(chain));
}

}  // namespace tandem
