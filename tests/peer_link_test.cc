// The sum between GPUs by kernels that read each other's memory, without GPUs: real processes, host memory as the
// GPU's, the kernel's CPU twin.
#include "reduce/peer_link.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <random>

#include "crew.h"
#include "reduce/gpu_combine.h"
#include "reduce/link_chain.h"

namespace tandem {
namespace {

using namespace trial;

struct PeerWay {
  bool on_gpu = true;                          // areas on the "GPU"; else all in host memory
  std::vector<std::pair<int, int>> unreached;  // (reader, owner), by rank: mapping the owner's GPU memory fails
  std::vector<std::pair<int, int>> wrong;      // it maps, and reads as something else
  int makes_none = -1;                         // the rank whose GPU makes no memory that others can map
  int without_host = -1;                       // the rank that can't map host memory either
  bool required = true, waits = true;
  bool begins_late = false;  // much time passes before the first combine
  bool takes_turns = false;  // all are on one GPU
  bool chained = false;      // another link follows where this one is refused
  double form_seconds = 600;
  // Rank `victim` kills or stops itself in the kernel of its sum number `at_sum`, from 0, or in the first one after it
  // that has so many blocks, at `point` of `block`.
  int victim = -1, at_sum = 0, block = 0;
  PeerPoint point = PeerPoint::kBegun;
  int signal = SIGKILL;
};

// The CPU's memory as a GPU's, with planted refusals.
class PlantedMemory : public PeerMemory {
 public:
  PlantedMemory(PeerWay way, int rank) : way_(std::move(way)), rank_(rank), host_(host_peer_memory(cpu_device())) {}
  void reads_from(int rank) { owner_ = rank; }
  std::unique_ptr<PeerArea> make(size_t bytes) override {
    if (way_.makes_none == rank_) throw std::runtime_error("cuMemCreate: CUDA_ERROR_NOT_SUPPORTED");
    return host_->make(bytes);
  }
  std::unique_ptr<PeerArea> map(int fd, size_t bytes) override {
    const auto planted = [&](const std::vector<std::pair<int, int>>& pairs) {
      return std::ranges::find(pairs, std::pair(rank_, owner_)) != pairs.end();
    };
    if (planted(way_.unreached)) {
      close(fd);
      throw std::runtime_error("cuMemSetAccess: CUDA_ERROR_INVALID_DEVICE");
    }
    if (!planted(way_.wrong)) return host_->map(fd, bytes);
    close(fd);
    return host_->make(bytes);  // other memory
  }

 private:
  PeerWay way_;
  int rank_, owner_ = -1;
  std::unique_ptr<PeerMemory> host_;
};

class RefusedMemory : public PeerMemory {
 public:
  std::unique_ptr<PeerArea> make(size_t) override { throw std::runtime_error("no memory is pinned here"); }
  std::unique_ptr<PeerArea> map(int fd, size_t) override {
    close(fd);
    throw std::runtime_error("no memory is pinned here");
  }
};

// Tells the planted memory whose area is being mapped.
class WatchedMail : public PeerMail {
 public:
  WatchedMail(std::unique_ptr<PeerMail> inner, PlantedMemory& memory, std::vector<int> ranks)
      : inner_(std::move(inner)), memory_(memory), ranks_(std::move(ranks)) {}
  void send(int member, const PeerLetter& letter) override { inner_->send(member, letter); }
  std::optional<PeerLetter> receive(int member) override {
    memory_.reads_from(ranks_[static_cast<size_t>(member)]);
    return inner_->receive(member);
  }

 private:
  std::unique_ptr<PeerMail> inner_;
  PlantedMemory& memory_;
  std::vector<int> ranks_;
};

double late_by = 0;  // seconds by which the link's clock is ahead

using Sockets = std::vector<std::vector<int>>;  // [member][other member]

// One socket for each pair of members, as the launcher makes them.
Sockets sockets_for(int members) {
  Sockets all(static_cast<size_t>(members), std::vector<int>(static_cast<size_t>(members), -1));
  for (int a = 0; a < members; ++a)
    for (int b = a + 1; b < members; ++b) {
      int ends[2];
      if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) throw std::runtime_error("socketpair");
      all[a][b] = ends[0];
      all[b][a] = ends[1];
    }
  return all;
}

// Carries nothing; its members agree on who they are, and say so once.
class CountingLink : public DirectGpuLink {
 public:
  CountingLink(std::string log, int rank, int members) : log_(std::move(log)), rank_(rank), members_(members) {}
  bool carries() const override { return false; }
  void sum(float*, std::span<const float* const>, int64_t, int64_t, LinkIntegers) override {
    throw std::logic_error("nothing is carried here");
  }
  int words() const override { return said_ ? 0 : members_; }
  void give(std::span<int64_t> words, int64_t) override { words[static_cast<size_t>(rank_)] = 1; }
  void take(std::span<const int64_t> largest) override {
    said_ = true;
    const auto members = std::ranges::count(largest, 1);
    std::ofstream(log_, std::ios::app) << fmt::format("then {} members rank={}\n", members, rank_);
  }

 private:
  std::string log_;
  int rank_, members_;
  bool said_ = false;
};

class PeerSide : public Side {
 public:
  PeerSide(int rank, const PeerWay& way, Records& records, const std::vector<Sockets>& sockets, std::string log)
      : rank_(rank),
        way_(way),
        records_(records),
        sockets_(sockets),
        log_(std::move(log)),
        planted_(way, rank),
        host_(rank == way.without_host ? std::make_unique<RefusedMemory>() : host_peer_memory(cpu_device())) {
    if (rank_ == way_.victim)
      at_peer_points = [this](PeerPoint point, int block) {
        const int sum = sums_ - (block > 0 ? 1 : 0);  // the CPU runs one block after the other
        if (block == way_.block && point == way_.point && sum >= way_.at_sum && !std::exchange(struck_, true))
          raise(way_.signal);
        sums_ += block == 0 && point == PeerPoint::kGathered;  // a kernel that left early comes again in the same sum
      };
  }
  std::unique_ptr<Combine> combine(const LinkMembers& members, std::unique_ptr<Combine> inner,
                                   const Generation& generation, const SharedMemory& segment,
                                   const Watch& watch) override {
    if (link_) link_->retire();
    link_ = nullptr;
    const ShardRange mine = members.ranges[static_cast<size_t>(members.me)];
    if (members.ranges.size() == 1)
      return std::make_unique<GpuCombine>(members.shards, mine, std::move(inner), cpu_device());
    std::vector<int> mail = sockets_.at(members.generation - 1)[static_cast<size_t>(members.me)];
    for (int& fd : mail)
      if (fd >= 0) fd = dup(fd);
    PeerSumLink::Options options{
        .asked_for = way_.required ? "TANDEM_PLANE=peer" : "", .waits = way_.waits, .form_seconds = way_.form_seconds};
    options.wait_ns = 1'000'000;
    late_by = 0;
    options.now = [] { return monotonic_seconds() + late_by; };
    options.tell = [this](const std::vector<PeerSumLink::Way>& ways) {
      for (const auto& [rank, gpu, why] : ways)
        std::ofstream(log_, std::ios::app)
            << fmt::format("reads {} {} {} rank={}\n", rank, gpu ? "gpu" : "host", why, rank_);
    };
    options.note = [this](const std::string& words) {
      records_.notes.fetch_add(1);
      keep_words(records_.note, words);
    };
    options.log = [this](const std::string& words) {
      std::ofstream(log_, std::ios::app) << words + " rank=" + std::to_string(rank_) + "\n";
    };
    PeerSumLink::Gpu gpu{.device = cpu_device(),
                         .kernels = &PeerKernels::cpu(),
                         .idle = [] { return true; },
                         .blocks = 2 + rank_,
                         .takes_turns = way_.takes_turns ? 7u : 0u,
                         .device_memory = way_.on_gpu ? &planted_ : nullptr,
                         .host_memory = host_.get()};
    auto link = std::make_unique<PeerSumLink>(
        members, peer_words(generation.shape, segment),
        std::make_unique<WatchedMail>(socket_peer_mail(std::move(mail)), planted_, members.ranks), std::move(gpu),
        std::move(options), generation.shape.max_floats, watch);
    link_ = link.get();
    if (way_.begins_late) late_by = 1e6;
    auto chain = std::make_unique<LinkChain>(
        std::move(link), [this, count = static_cast<int>(members.ranks.size())]() -> std::unique_ptr<DirectGpuLink> {
          if (!way_.chained) return nullptr;
          return std::make_unique<CountingLink>(log_, rank_, count);
        });
    auto talk = std::make_unique<LinkTalk>(std::move(inner), *chain, mine.size());
    return std::make_unique<GpuCombine>(members.shards, mine, std::move(talk), cpu_device(), std::move(chain));
  }

 private:
  int rank_, sums_ = 0;
  bool struck_ = false;
  PeerWay way_;
  Records& records_;
  const std::vector<Sockets>& sockets_;
  std::string log_;
  PlantedMemory planted_;
  std::unique_ptr<PeerMemory> host_;
  PeerSumLink* link_ = nullptr;
};

class PeerCrew : public Crew {
 public:
  PeerCrew(CombineTrial trial, std::vector<Generation> generations) : Crew(std::move(trial), std::move(generations)) {
    for (const Generation& g : all()) sockets_.push_back(sockets_for(static_cast<int>(g.ranks.size())));
  }
  ~PeerCrew() {
    for (const Sockets& of_generation : sockets_)
      for (const std::vector<int>& of_member : of_generation)
        for (const int fd : of_member)
          if (fd >= 0) close(fd);
  }
  pid_t begin(int rank, const PeerWay& way, size_t generation = 0, int phase = 0) {
    return Crew::begin(
        rank, [this, way](int r) { return std::make_unique<PeerSide>(r, way, records(), sockets_, log()); }, generation,
        phase);
  }
  void begin_all(const PeerWay& way) {
    for (const int rank : first_ranks()) begin(rank, way);
  }

 private:
  std::vector<Sockets> sockets_;
};

TEST(PeerLink, AnyMembersAndRangesGiveTheBitsOfOneProcess) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 16; ++round) {
    const int members = 2 + round % 5;
    CombineTrial trial{.seed = 300u + round, .shards = 0, .ranges = {}, .phases = {}};
    trial.shards = round % 3 == 0 ? 24 : members + static_cast<int>(random() % 20);
    const int64_t lengths[] = {0, 1, 15, 17, 64, 1000, 4097, 70001};
    for (int p = 0; p < 5; ++p)
      trial.phases.push_back(
          {.layout = {.floats = lengths[random() % 8], .counts = 2, .maxima = p % 3}, .all_reduces = {3}});
    std::vector<int> ranks(members);
    std::iota(ranks.begin(), ranks.end(), 0);
    PeerCrew crew(trial, generations(generation(ranks, random_ranges(trial.shards, members, random()))));
    crew.begin_all({.on_gpu = round % 2 == 0});
    for (const int rank : ranks) ASSERT_EQ(crew.end(rank), 0) << "round " << round;
    crew.expect_all_bits(ranks);
    ASSERT_EQ(crew.logged("sums by kernels"), members);
    if (HasFatalFailure()) return;
  }
}

TEST(PeerLink, HostMemoryServesUntilAllAreReady) {
  PeerCrew crew(some_phases(60), generations(generation({0, 1, 2}, kThree)));
  crew.begin_all({.waits = false});
  for (const int rank : {0, 1, 2}) ASSERT_EQ(crew.end(rank), 0);
  crew.expect_all_bits({0, 1, 2});
  EXPECT_EQ(crew.logged("sums by kernels"), 3);
}

// Each pair is judged by itself: who does not reach a GPU's memory reads the same sums in pinned host memory.
TEST(PeerLink, APairWithoutPeerAccessGoesThroughPinnedHostMemory) {
  PeerCrew crew(some_phases(20), generations(generation({0, 1, 2}, kThree)));
  crew.begin_all({.unreached = {{0, 2}, {2, 0}}, .wrong = {{1, 2}}});
  for (const int rank : {0, 1, 2}) ASSERT_EQ(crew.end(rank), 0);
  crew.expect_all_bits({0, 1, 2});
  EXPECT_EQ(crew.logged("the memory of rank 2's GPU is not reached from here: cuMemSetAccess", 0), 1);
  EXPECT_EQ(crew.logged("the memory of rank 2's GPU is not reached from here: what is read there", 1), 1);
  EXPECT_EQ(crew.logged("sums by kernels over 3 members, 2 blocks: reads [1] on their GPUs, [2] in pinned", 0), 1);
  EXPECT_EQ(crew.logged("sums by kernels over 3 members, 2 blocks: reads [0] on their GPUs, [2] in pinned", 1), 1);
  EXPECT_EQ(crew.logged("sums by kernels over 3 members, 2 blocks: reads [1] on their GPUs, [0] in pinned", 2), 1);
  EXPECT_EQ(crew.logged("reads 1 gpu  rank=0"), 1);
  EXPECT_EQ(crew.logged("reads 2 host cuMemSetAccess: CUDA_ERROR_INVALID_DEVICE rank=0"), 1);
  EXPECT_EQ(crew.logged("reads 2 host what is read there is not what its owner wrote rank=1"), 1);
}

TEST(PeerLink, AGpuThatLendsNoMemoryIsReadInPinnedHostMemory) {
  PeerCrew crew(some_phases(20), generations(generation({0, 1, 2}, kThree)));
  crew.begin_all({.makes_none = 1});
  for (const int rank : {0, 1, 2}) ASSERT_EQ(crew.end(rank), 0);
  crew.expect_all_bits({0, 1, 2});
  EXPECT_EQ(crew.logged("sums by kernels over 3 members, 2 blocks: reads [0, 2] on their GPUs", 1), 1);
  EXPECT_EQ(crew.logged("sums by kernels over 3 members, 2 blocks: reads [2] on their GPUs, [1] in pinned", 0), 1);
}

TEST(PeerLink, EverybodyUsesHostMemoryIfOneRankCanMapNothingAndItTellsWhy) {
  PeerCrew crew(some_phases(20), generations(generation({0, 1, 2}, kThree)));
  crew.begin_all({.on_gpu = false, .without_host = 1, .required = false});
  for (const int rank : {0, 1, 2}) ASSERT_EQ(crew.end(rank), 0);
  crew.expect_all_bits({0, 1, 2});
  EXPECT_EQ(crew.records().notes, 1);
  EXPECT_NE(std::string(crew.records().note).find("no memory is pinned here"), std::string::npos)
      << crew.records().note;
  EXPECT_EQ(crew.logged("sums by kernels"), 0);
}

TEST(PeerLink, WhereOneRankIsRefusedAllGoOnWithTheNextLinkTogether) {
  PeerCrew crew(some_phases(20), generations(generation({0, 1, 2}, kThree)));
  crew.begin_all({.on_gpu = false, .without_host = 1, .required = false, .chained = true});
  for (const int rank : {0, 1, 2}) ASSERT_EQ(crew.end(rank), 0);
  crew.expect_all_bits({0, 1, 2});
  EXPECT_EQ(crew.logged("then 3 members"), 3);
}

TEST(PeerLink, ARefusalEndsARunThatAllowsNothingElse) {
  PeerCrew crew(some_phases(12), generations(generation({0, 1}, kTwo)));
  crew.begin_all({.on_gpu = false, .without_host = 0});
  EXPECT_EQ(crew.end(0), kRefused);
  EXPECT_NE(
      std::string(crew.records().words).find("the GPUs can't sum by kernels: memory shared with rank 1: no memory"),
      std::string::npos)
      << crew.records().words;
  crew.kill_and_reap(1, 0);  // as the launcher does when it learns that the run can't go on
}

// A first phase may take minutes: only the time that somebody waited counts.
TEST(PeerLink, WhatPassesBeforeTheFirstCombineIsNoReasonToGiveUp) {
  PeerCrew crew(some_phases(12), generations(generation({0, 1, 2}, kThree)));
  crew.begin_all({.begins_late = true});
  for (const int rank : {0, 1, 2}) ASSERT_EQ(crew.end(rank), 0) << crew.records().words;
  crew.expect_all_bits({0, 1, 2});
  EXPECT_EQ(crew.logged("sums by kernels"), 3);
}

TEST(PeerLink, WorkersThatTakeTurnsOnOneGpuUseHostMemoryUnlessAskedOtherwise) {
  for (const bool required : {false, true}) {
    PeerCrew crew(some_phases(12), generations(generation({0, 1, 2}, kThree)));
    crew.begin_all({.required = required, .takes_turns = true});
    for (const int rank : {0, 1, 2}) ASSERT_EQ(crew.end(rank), 0);
    crew.expect_all_bits({0, 1, 2});
    EXPECT_EQ(crew.logged("sums by kernels"), required ? 3 : 0);
    if (!required) {
      EXPECT_NE(std::string(crew.records().note).find("on the same GPU, and without MPS they take turns"),
                std::string::npos)
          << crew.records().note;
    }
  }
}

TEST(PeerLink, ALinkThatIsNeverReadyIsGivenUp) {
  PeerCrew crew(some_phases(12), generations(generation({0, 1, 2}, kThree)));
  crew.begin_all({.required = false, .waits = false, .form_seconds = 0});
  for (const int rank : {0, 1, 2}) ASSERT_EQ(crew.end(rank), 0);
  crew.expect_all_bits({0, 1, 2});
}

constexpr PeerPoint kPoints[] = {PeerPoint::kBegun, PeerPoint::kShown,   PeerPoint::kPublished,
                                 PeerPoint::kAdded, PeerPoint::kReduced, PeerPoint::kGathered};

TEST(PeerLink, ADeathAnywhereInTheKernelIsSurvived) {
  for (const int victim : {0, 1, 2})
    for (const PeerPoint point : kPoints) {
      std::vector<int> rest = {0, 1, 2};
      rest.erase(rest.begin() + victim);
      PeerCrew crew(some_phases(16), generations(generation({0, 1, 2}, kThree), generation(rest, kTwo)));
      crew.begin_all({.on_gpu = victim != 1, .victim = victim, .at_sum = 3, .point = point});
      EXPECT_EQ(crew.end(victim), 128 + SIGKILL);
      crew.reap(victim, 0);
      for (const int rank : rest) ASSERT_EQ(crew.end(rank), 0) << "without " << victim;
      crew.expect_all_bits(rest);
      EXPECT_EQ(crew.logged("sums by kernels"), 5) << "three members, then two";
      if (HasFatalFailure()) return;
    }
}

// A member has done its part when all its blocks have: what the others may have applied is completed by all of them.
TEST(PeerLink, ADeathBetweenTwoBlocksIsSurvived) {
  for (const int block : {0, 1})
    for (const PeerPoint point : kPoints) {
      PeerCrew crew(some_phases(16, 6, 60000), generations(generation({0, 1, 2}, kThree), generation({0, 2}, kTwo)));
      crew.begin_all({.victim = 1, .at_sum = 3, .block = block, .point = point});
      EXPECT_EQ(crew.end(1), 128 + SIGKILL);
      crew.reap(1, 0);
      for (const int rank : {0, 2}) ASSERT_EQ(crew.end(rank), 0) << "block " << block;
      crew.expect_all_bits({0, 2});
      if (HasFatalFailure()) return;
    }
}

TEST(PeerLink, AReplacementIsTakenIn) {
  PeerCrew crew(some_phases(20), generations(generation({0, 1, 2}, kThree), generation({0, 2}, kTwo),
                                             generation({0, 1, 2}, kThree, 14)));
  crew.begin_all({.victim = 1, .at_sum = 3, .point = PeerPoint::kAdded});
  EXPECT_EQ(crew.end(1), 128 + SIGKILL);
  crew.reap(1, 0);
  crew.begin(1, {}, 2, 14);
  for (const int rank : {0, 1, 2}) ASSERT_EQ(crew.end(rank), 0);
  crew.expect_all_bits({0, 2});
}

// A frozen member: the others leave the kernel and come again, as often as it takes, and go on with it where it wakes.
TEST(PeerLink, AStoppedMemberThatWakesIsWaitedFor) {
  for (const PeerPoint point : kPoints) {
    PeerCrew crew(some_phases(16), generations(generation({0, 1, 2}, kThree)));
    crew.begin_all({.victim = 1, .at_sum = 3, .point = point, .signal = SIGSTOP});
    crew.until_stopped(1);
    crew.wake(1);
    for (const int rank : {0, 1, 2}) ASSERT_EQ(crew.end(rank), 0);
    crew.expect_all_bits({0, 1, 2});
    if (HasFatalFailure()) return;
  }
}

// ... and one that does not wake is fenced.
TEST(PeerLink, AStoppedMemberThatIsFencedIsDoneWithout) {
  PeerCrew crew(some_phases(16), generations(generation({0, 1, 2}, kThree), generation({0, 2}, kTwo)));
  crew.begin_all({.victim = 1, .at_sum = 3, .point = PeerPoint::kPublished, .signal = SIGSTOP});
  crew.until_stopped(1);
  crew.kill_and_reap(1, 0);
  for (const int rank : {0, 2}) ASSERT_EQ(crew.end(rank), 0);
  crew.expect_all_bits({0, 2});
}

}  // namespace
}  // namespace tandem
