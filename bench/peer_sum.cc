// bench/peer_sum.cc -- what the sum between GPUs by kernels takes (kernels/peer_sum.h), beside the probe's times.
//
//   peer_sum [--cpu] [--share PERCENT] [--rounds 40] [ranks ...]       default: 2 4 8
//
// Each rank is a process on the first visible GPU, so NVIDIA's MPS must run (bench/gpu_fleet.py --sums starts it); with
// --share each has so many percent of the SMs. --cpu: CPU ranks, to see that it works. Four sums are queued at once, as
// in a captured step: no launch and no host is between them. `in_kernel_us`: block 0's own clock, of one sum;
// `wall_us`: a quarter of what the host waited for the four. Each rank checks the total's bits. One line of JSON for
// each number of ranks, plane and length, of rank 0: medians; `probe_us`: of a kernel that did nothing else, on an
// H200, 12 % each.
#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "base/clock.h"
#include "base/shared_memory.h"
#include "engine/gpu_device.h"
#include "reduce/peer_link.h"

namespace tandem {
namespace {

constexpr int64_t kSmall = 1'500'000 / 4, kLarge = 69'000'000 / 4;
constexpr int kSums = kMostPeerSums;

struct Options {
  bool cpu = false;
  std::string share;
  int rounds = 40;
  std::vector<int> ranks;
};

// ranks, through pinned memory, large: us
const std::map<std::tuple<int, bool, bool>, double> kProbe = {
    {{2, false, false}, 21},  {{4, false, false}, 34}, {{8, false, false}, 45},  {{2, false, true}, 675},
    {{4, false, true}, 759},  {{8, false, true}, 957}, {{2, true, false}, 259},  {{4, true, false}, 567},
    {{8, true, false}, 1426}, {{2, true, true}, 8100}, {{4, true, true}, 17200}, {{8, true, true}, 37000}};

struct NeverAbandoned : Watch {
  bool abandoned(uint64_t, int64_t) const override { return false; }
};

struct Scene {  // shared by the ranks
  pthread_barrier_t barrier;
  int64_t words[kMostPeers][DirectGpuLink::kWords];
};

// By rank and index, so that a sum in another order or of another vector has other bits.
float value_of(int rank, int64_t i, int sum) {
  return static_cast<float>((i * 7 + rank * 131 + sum * 17) % 1021) * 0.37f + 1e-3f * static_cast<float>(rank);
}

float total_of(int ranks, int64_t i, int sum) {
  const SumTree tree(ranks);
  std::vector<float> stack;
  const std::vector<ShardRange> ranges = [&] {
    std::vector<ShardRange> all;
    for (int r = 0; r < ranks; ++r) all.push_back({r, r + 1});
    return all;
  }();
  const Join<float> join(tree, ranges);
  for (int r = 0; r < ranks; ++r) {
    float x = value_of(r, i, sum);
    for (int merges = join.merges()[static_cast<size_t>(r)]; merges > 0; --merges) {
      x = stack.back() + x;
      stack.pop_back();
    }
    stack.push_back(x);
  }
  return stack.back();
}

double median(std::vector<double> of) {
  std::ranges::sort(of);
  return of[of.size() / 2];
}

class Rank {
 public:
  Rank(const Options& options, Scene& scene, const SharedMemory& words, std::vector<int> sockets, int ranks, int me,
       bool pinned)
      : options_(options), scene_(scene), ranks_(ranks), me_(me), pinned_(pinned) {
    if (!options.cpu) open_gpu(0.9);
    GpuDevice* const ours = gpu();
    kernels_ = ours ? ours->kernels<PeerKernels>() : &PeerKernels::cpu();
    host_ = host_peer_memory(device());
    if (!pinned) on_gpu_ = ours ? gpu_peer_memory() : host_peer_memory(device());
    LinkMembers members{.shards = ranks, .ranges = {}, .ranks = {}, .me = me, .generation = 1};
    for (int r = 0; r < ranks; ++r) members.ranges.push_back({r, r + 1}), members.ranks.push_back(r);
    PeerSumLink::Gpu with{.device = device(),
                          .kernels = kernels_,
                          .stream = ours ? ours->stream() : nullptr,
                          .idle = [ours] { return !ours || ours->idle(); },
                          .blocks = kernels_->most_blocks(),
                          .steps = true,
                          .device_memory = on_gpu_.get(),
                          .host_memory = host_.get()};
    PeerSumLink::Options how{.asked_for = "this program", .waits = true};
    how.log = [me](const std::string& text) {
      if (me == 0) fmt::print(stderr, "{}\n", text);
    };
    if (!ours) how.wait_ns = 1'000'000;
    link_ =
        std::make_unique<PeerSumLink>(members, PeerWords(words.bytes(), ranks, 1), socket_peer_mail(std::move(sockets)),
                                      std::move(with), std::move(how), kLarge, watch_);
    while (!link_->carries()) agree();
  }

  void measure(bool large) {
    const int64_t n = large ? kLarge : kSmall;
    Device& on = device();
    const size_t bytes = static_cast<size_t>(n) * sizeof(float);
    float* mine[kSums];
    auto* const total = static_cast<float*>(on.allocate(bytes));
    auto* const bad = static_cast<int64_t*>(on.allocate(sizeof(int64_t)));
    std::vector<float> values(static_cast<size_t>(n));
    for (int s = 0; s < kSums; ++s) {
      mine[s] = static_cast<float*>(on.allocate(bytes));
      for (int64_t i = 0; i < n; ++i) values[static_cast<size_t>(i)] = value_of(me_, i, s);
      on.from_host(mine[s], values.data(), bytes);
    }
    std::vector<double> wall, in_kernel;
    for (int round = 0; round < options_.rounds; ++round) {
      on.fill_ones(bad, sizeof(int64_t));
      on.wait();
      pthread_barrier_wait(&scene_.barrier);
      const double begin = monotonic_seconds();
      link_->begin_queued(sequence_, {});
      for (int ended = 0; ended < kSums;) {
        if (ended > 0) on.fill_ones(bad, sizeof(int64_t));  // it was late: from the first unfinished one on
        for (int s = ended; s < kSums; ++s) {
          const float* const partial = mine[s];
          link_->queue({.total = total,
                        .mine = {&partial, 1},
                        .floats = n,
                        .ahead = s,
                        .integers = {.of_shards = {}, .bad = bad, .from_host = false}});
        }
        ended = link_->end_queued(sequence_, kSums);
      }
      if (round >= options_.rounds / 4) {  // the first warm up
        wall.push_back((monotonic_seconds() - begin) / kSums);
        in_kernel.push_back(link_->last_seconds() / kSums);
      }
      sequence_ += kSums;
    }
    on.to_host(values.data(), total, bytes);
    int64_t wrong = 0;
    for (int64_t i = 0; i < n; i += large ? 101 : 1)
      wrong += values[static_cast<size_t>(i)] != total_of(ranks_, i, kSums - 1);
    for (float* const partial : mine) on.release(partial);
    on.release(total), on.release(bad);
    if (wrong > 0) {
      fmt::print(stderr, "error: rank {} has {} wrong numbers\n", me_, wrong);
      _exit(1);
    }
    if (me_ != 0) return;
    const auto probe = kProbe.find({ranks_, pinned_, large});
    fmt::print("{{\"ranks\": {}, \"through\": \"{}\", \"mb\": {:.1f}, \"in_kernel_us\": {:.1f}, \"wall_us\": {:.1f}",
               ranks_, pinned_ ? "pinned host memory" : "GPU memory", static_cast<double>(bytes) / 1e6,
               1e6 * median(in_kernel), 1e6 * median(wall));
    if (!options_.cpu && probe != kProbe.end())
      fmt::print(", \"probe_us\": {:g}, \"times_probe\": {:.2f}", probe->second, 1e6 * median(wall) / probe->second);
    fmt::print("}}\n");
    std::fflush(stdout);
  }

 private:
  void agree() {
    const auto size = static_cast<size_t>(link_->words());
    std::vector<int64_t> largest(size, 0);
    pthread_barrier_wait(&scene_.barrier);
    std::fill_n(scene_.words[me_], size, 0);
    link_->give({scene_.words[me_], size}, 0);
    pthread_barrier_wait(&scene_.barrier);
    for (int r = 0; r < ranks_; ++r)
      for (size_t i = 0; i < size; ++i) largest[i] = std::max(largest[i], scene_.words[r][i]);
    link_->take(largest);
  }

  const Options& options_;
  Scene& scene_;
  int ranks_, me_;
  bool pinned_;
  int64_t sequence_ = 0;
  const PeerKernels* kernels_ = nullptr;
  std::unique_ptr<PeerMemory> on_gpu_, host_;
  NeverAbandoned watch_;
  std::unique_ptr<PeerSumLink> link_;
};

// True: every rank came to its end.
bool run(const Options& options, int ranks, bool pinned) {
  auto* const scene =
      static_cast<Scene*>(mmap(nullptr, sizeof(Scene), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  pthread_barrierattr_t shared;
  pthread_barrierattr_init(&shared);
  pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&scene->barrier, &shared, static_cast<unsigned>(ranks));
  const SharedMemory words = SharedMemory::create("peer-sum", PeerWords::bytes(ranks, 1));
  const auto n = static_cast<size_t>(ranks);
  std::vector<std::vector<int>> sockets(n, std::vector<int>(n, -1));
  for (size_t a = 0; a < n; ++a)
    for (size_t b = a + 1; b < n; ++b) {
      int ends[2];
      if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return false;
      sockets[a][b] = ends[0], sockets[b][a] = ends[1];
    }
  std::vector<pid_t> pids;
  const pid_t parent = getpid();
  for (int me = 0; me < ranks; ++me) {
    const pid_t pid = fork();
    if (pid != 0) {
      pids.push_back(pid);
      continue;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);  // it ended before that
    int code = 1;
    try {
      Rank rank(options, *scene, words, sockets[static_cast<size_t>(me)], ranks, me, pinned);
      for (const bool large : {false, true}) rank.measure(large);
      code = 0;
    } catch (const std::exception& error) {
      fmt::print(stderr, "error: rank {}: {}\n", me, error.what());
    }
    std::fflush(nullptr);
    _exit(code);
  }
  for (const auto& of_rank : sockets)
    for (const int fd : of_rank)
      if (fd >= 0) close(fd);
  bool good = true;
  for (size_t left = n; left > 0; --left) {
    int status = 0;
    const pid_t ended = wait(&status);
    if (good && status != 0)
      for (const pid_t pid : pids)
        if (pid != ended) kill(pid, SIGKILL);  // they would wait for it for ever
    good = good && status == 0;
  }
  munmap(scene, sizeof(Scene));
  return good;
}

}  // namespace
}  // namespace tandem

int main(int count, char** words) {
  tandem::Options options;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    if (word == "--cpu")
      options.cpu = true;
    else if (word == "--share" && i + 1 < count)
      options.share = words[++i];
    else if (word == "--rounds" && i + 1 < count)
      options.rounds = std::max(4, std::atoi(words[++i]));
    else if (const int ranks = std::atoi(word.c_str()); ranks >= 2 && ranks <= tandem::kMostPeers)
      options.ranks.push_back(ranks);
    else
      return std::fputs("peer_sum [--cpu] [--share PERCENT] [--rounds 40] [ranks, 2 to 16 ...]\n", stderr), 2;
  }
  if (options.ranks.empty()) options.ranks = {2, 4, 8};
  if (!options.share.empty()) setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", options.share.c_str(), 1);
  bool good = true;
  for (const bool pinned : {false, true})
    for (const int ranks : options.ranks) good = tandem::run(options, ranks, pinned) && good;
  return good ? 0 : 1;
}
