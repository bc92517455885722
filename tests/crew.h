// tests/crew.h -- processes that run a made-up program of phases (reduce/combine_trial.h) over a transport between
// GPUs, through generations: what a launcher would do about deaths, the test does.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/temp_dir.h"
#include "fleet/worker_page.h"
#include "reduce/combine_trial.h"
#include "reduce/direct_gpu_link.h"
#include "reduce/shm_combine.h"

namespace tandem::trial {

inline constexpr int kMostRanks = 8, kMostPhases = 64, kStuck = 55, kRefused = 56, kNoNews = -2;

struct Records {
  WorkerPage page;  // what the launcher tells; one serves all
  Seen seen[kMostPhases][kMostRanks];
  std::atomic<int> notes{0};
  char note[400], words[400];
};

struct PageWatch : Watch {
  explicit PageWatch(const WorkerPage& p) : page(p) {}
  bool abandoned(uint64_t generation, int64_t sequence) const override { return page.abandoned(generation, sequence); }
  const WorkerPage& page;
};

struct Generation {
  std::vector<int> ranks;
  std::vector<ShardRange> ranges;
  int begins_at = kNoNews;  // without a death: all change to it before this phase
  ShmShape shape;
  SharedMemory segment;
};

inline void keep_words(char (&text)[400], const std::string& words) { words.copy(text, sizeof text - 1); }

// How one process makes its combines, generation after generation.
class Side {
 public:
  virtual ~Side() = default;
  virtual std::unique_ptr<Combine> combine(const LinkMembers& members, std::unique_ptr<Combine> inner,
                                           const Generation& generation, const SharedMemory& segment,
                                           const Watch& watch) = 0;
};

class Crew {
 public:
  Crew(CombineTrial trial, std::vector<Generation> generations)
      : trial_(std::move(trial)), generations_(std::move(generations)) {
    for (Generation& g : generations_) {
      const ContributionLayout most = with_link_words({.floats = trial_.max(&ContributionLayout::floats),
                                                       .counts = trial_.max(&ContributionLayout::counts),
                                                       .maxima = trial_.max(&ContributionLayout::maxima)});
      g.shape = {.shards = trial_.shards,
                 .ranges = g.ranges,
                 .max_floats = most.floats,
                 .max_counts = most.counts,
                 .max_maxima = most.maxima,
                 .exchange = true};
      g.segment = SharedMemory::create("test", shm_combine_bytes(g.shape));
    }
    log_ = (dir_.path() / "log").string();
  }

  // A process that runs from the generation's first phase to the end, with whatever members it is given.
  // `make` is called in it.
  using MakeSide = std::function<std::unique_ptr<Side>(int rank)>;
  pid_t begin(int rank, const MakeSide& make, size_t generation = 0, int phase = 0) {
    return pids_[rank] = start([this, rank, make, generation, phase]() mutable {
             const std::unique_ptr<Side> side = make(rank);
             live(rank, *side, generation, phase);
           });
  }
  // Until a signal has stopped it, which it sent to itself.
  void until_stopped(int rank) const {
    int status = 0;
    while (waitpid(pids_[rank], &status, WUNTRACED) != pids_[rank] || !WIFSTOPPED(status)) {
    }
  }
  void wake(int rank) const { kill(pids_[rank], SIGCONT); }
  const std::vector<Generation>& all() const { return generations_; }
  const std::vector<int>& first_ranks() const { return generations_[0].ranks; }
  int end(int rank) const { return end_of(pids_[rank]); }

  // What the launcher does when a worker of a generation has died.
  void reap(int rank, size_t generation) {
    const Generation& g = generations_[generation];
    const auto member = static_cast<int>(std::find(g.ranks.begin(), g.ranks.end(), rank) - g.ranks.begin());
    std::optional<int64_t> mark = close_mark(g.segment, member);
    if (g.ranks.size() > 1) mark = std::max(mark, peer_words(g.shape, g.segment).close(member, generation + 1));
    const int64_t cut = mark.value_or(-1);
    records_->page.revoke(generation + 1, cut);
    if (g.ranks.size() > 1) peer_words(g.shape, g.segment).decide(cut);
    wake_all(g.segment);
  }
  void kill_and_reap(int rank, size_t generation) {
    kill(pids_[rank], SIGKILL);
    EXPECT_EQ(end(rank), 128 + SIGKILL);
    reap(rank, generation);
  }

  void expect_all_bits(const std::vector<int>& ranks) const {
    const auto want = expected_alike();
    for (size_t phase = 0; phase < trial_.phases.size(); ++phase)
      for (const int rank : ranks) {
        Seen seen = records_->seen[phase][rank];
        seen.exchange = 0;
        ASSERT_EQ(seen, want[phase]) << "phase " << phase << ", rank " << rank;
      }
  }
  int logged(const std::string& word, int rank = -1) const {
    std::ifstream file(log_);
    int found = 0;
    for (std::string line; std::getline(file, line);)
      found += line.starts_with(word) && (rank < 0 || line.find(" rank=" + std::to_string(rank)) != std::string::npos);
    return found;
  }
  void until_logged(const std::string& word, int times, int rank = -1) const {
    while (logged(word, rank) < times) sched_yield();
  }
  Records& records() { return *records_; }
  const std::string& log() const { return log_; }

 private:
  std::vector<Seen> expected_alike() const {
    CombineTrial whole = trial_;
    whole.ranges = {{0, trial_.shards}};
    std::vector<Seen> all;
    for (const auto& of_phase : expected(whole)) {
      all.push_back(of_phase[0]);
      all.back().exchange = 0;
    }
    return all;
  }
  void live(int rank, Side& side, size_t generation, int phase) {
    const PageWatch watch(records_->page);
    std::unique_ptr<Combine> combine;
    const auto enter_generation = [&] {
      Generation& g = generations_.at(generation);
      const auto member = std::find(g.ranks.begin(), g.ranks.end(), rank);
      if (member == g.ranks.end()) _exit(0);
      LinkMembers members{.shards = trial_.shards,
                          .ranges = g.ranges,
                          .ranks = g.ranks,
                          .me = static_cast<int>(member - g.ranks.begin()),
                          .generation = generation + 1};
      SharedMemory segment = SharedMemory::adopt(dup(g.segment.fd()), g.segment.bytes().size());
      segment_ = SharedMemory::adopt(dup(g.segment.fd()), g.segment.bytes().size());
      auto inner = std::make_unique<ShmCombine>(g.shape, members.me, std::move(segment), generation + 1,
                                                trial_.first_sequence_of(phase), watch);
      combine = side.combine(members, std::move(inner), g, segment_, watch);
      return g.ranges[members.me];
    };
    ShardRange mine = enter_generation();
    while (phase < static_cast<int>(trial_.phases.size())) {
      try {
        if (generation + 1 < generations_.size() && generations_[generation + 1].begins_at == phase) {
          ++generation;
          mine = enter_generation();
        }
        // An odd number lends a vector, whose memory run_phase() frees when the members change: a GPU's would still be
        // there.
        const uint64_t visits = mix(trial_.seed + phase * 8 + rank) & ~uint64_t{generations_.size() > 1};
        records_->seen[phase][rank] = run_phase(*combine, trial_, phase, mine, {&mine, 1}, visits)[0];
        ++phase;
      } catch (const MembersChanged&) {
        ++generation;
        mine = enter_generation();
      } catch (const ConfigError& error) {
        keep_words(records_->words, std::string(error.what()) + ": " + error.why());
        _exit(kRefused);
      } catch (const std::runtime_error& error) {
        keep_words(records_->words, error.what());
        throw;
      }
    }
    combine.reset();
  }

  CombineTrial trial_;
  std::vector<Generation> generations_;
  SharedMemory segment_;  // of the generation that a member is in
  TempDir dir_;
  std::string log_;
  Shared<Records> records_;
  pid_t pids_[kMostRanks] = {};
};

inline CombineTrial some_phases(int count, int shards = 6, int64_t floats = 5000) {
  CombineTrial trial{.seed = 77, .shards = shards, .ranges = {}, .phases = {}};
  for (int p = 0; p < count; ++p)
    trial.phases.push_back({.layout = {.floats = p % 5 == 3 ? 0 : floats + p, .counts = p % 3, .maxima = p % 2}});
  return trial;
}

inline const std::vector<ShardRange> kThree = {{0, 2}, {2, 3}, {3, 6}}, kTwo = {{0, 3}, {3, 6}};

inline Generation generation(std::vector<int> ranks, std::vector<ShardRange> ranges, int begins_at = kNoNews) {
  Generation g;
  g.ranks = std::move(ranks);
  g.ranges = std::move(ranges);
  g.begins_at = begins_at;
  return g;
}

template <class... G>
std::vector<Generation> generations(G... all) {
  std::vector<Generation> list;
  (list.push_back(std::move(all)), ...);
  return list;
}

}  // namespace tandem::trial
