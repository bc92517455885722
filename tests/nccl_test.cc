// The combine over NCCL, without GPUs: real processes, host memory as the GPU's, libfake_nccl.so as NCCL.
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <random>

#include "base/errors.h"
#include "base/temp_dir.h"
#include "fleet/worker_page.h"
#include "reduce/combine_trial.h"
#include "reduce/direct_gpu_link.h"
#include "reduce/nccl_transport.h"
#include "reduce/shm_combine.h"

namespace tandem {
namespace {

using namespace trial;

constexpr int kMostRanks = 8, kMostPhases = 64, kStuck = 55, kRefused = 56, kNoNews = -2;

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

struct Way {  // how a trial is run
  std::string faults;
  int faults_of = -1;  // the rank that has them; -1: all
  bool waits = true, required = true;
  std::string library = FAKE_NCCL_LIBRARY;
  int without_library = -1;
  NcclTimes times{.form_seconds = 600, .abort_seconds = 600, .blame_seconds = 600};
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
  pid_t begin(int rank, const Way& way, size_t generation = 0, int phase = 0) {
    return pids_[rank] = start([this, rank, way, generation, phase]() mutable { live(rank, way, generation, phase); });
  }
  void begin_all(const Way& way) {
    for (const int rank : generations_[0].ranks) begin(rank, way);
  }
  int end(int rank) const { return end_of(pids_[rank]); }

  // What the launcher does when a worker of a generation has died.
  void reap(int rank, size_t generation) {
    const Generation& g = generations_[generation];
    const auto member = std::find(g.ranks.begin(), g.ranks.end(), rank) - g.ranks.begin();
    const int64_t cut = close_mark(g.segment, static_cast<int>(member)).value_or(-1);
    records_->page.revoke(generation + 1, cut);
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
  void live(int rank, const Way& way, size_t generation, int phase) {
    setenv("FAKE_NCCL", way.faults_of < 0 || way.faults_of == rank ? way.faults.c_str() : "", 1);
    setenv("FAKE_NCCL_LOG", log_.c_str(), 1);
    const auto keep = [](char(&text)[400], const std::string& words) { words.copy(text, sizeof text - 1); };
    NcclTransport::Options options;
    options.library = way.without_library == rank ? "/nowhere/libnccl.so.2" : way.library;
    options.required = way.required;
    options.waits = way.waits;
    options.times = way.times;
    options.note = [&](const std::string& words) {
      records_->notes.fetch_add(1);
      keep(records_->note, words);
    };
    options.log = [](const std::string&) {};
    options.stuck = [&](const std::string& words) {
      keep(records_->words, words);
      _exit(kStuck);
    };
    const PageWatch watch(records_->page);
    NcclTransport transport(cpu_device(), {.stream = nullptr, .idle = [] { return true; }}, options);
    std::unique_ptr<Combine> combine;
    const auto enter_generation = [&] {
      Generation& g = generations_.at(generation);
      const auto member = std::find(g.ranks.begin(), g.ranks.end(), rank);
      if (member == g.ranks.end()) _exit(0);
      NcclMembers members{.shards = trial_.shards,
                          .ranges = g.ranges,
                          .ranks = g.ranks,
                          .me = static_cast<int>(member - g.ranks.begin()),
                          .generation = generation + 1};
      auto inner = std::make_unique<ShmCombine>(g.shape, members.me,
                                                SharedMemory::adopt(dup(g.segment.fd()), g.segment.bytes().size()),
                                                generation + 1, trial_.first_sequence_of(phase), watch);
      combine = transport.combine(members, std::move(inner), watch);
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
        keep(records_->words, std::string(error.what()) + ": " + error.why());
        _exit(kRefused);
      } catch (const std::runtime_error& error) {
        keep(records_->words, error.what());
        throw;
      }
    }
    combine.reset();
  }

  CombineTrial trial_;
  std::vector<Generation> generations_;
  TempDir dir_;
  std::string log_;
  Shared<Records> records_;
  pid_t pids_[kMostRanks] = {};
};

CombineTrial some_phases(int count, int shards = 6, int64_t floats = 5000) {
  CombineTrial trial{.seed = 77, .shards = shards, .ranges = {}, .phases = {}};
  for (int p = 0; p < count; ++p)
    trial.phases.push_back({.layout = {.floats = p % 5 == 3 ? 0 : floats + p, .counts = p % 3, .maxima = p % 2}});
  return trial;
}

const std::vector<ShardRange> kThree = {{0, 2}, {2, 3}, {3, 6}}, kTwo = {{0, 3}, {3, 6}};

TEST(Nccl, AnyMembersAndRangesGiveTheBitsOfOneProcess) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 24; ++round) {
    const int members = 2 + round % 5;
    CombineTrial trial{.seed = 300u + round, .shards = 0, .ranges = {}, .phases = {}};
    trial.shards = round % 3 == 0 ? 24 : members + static_cast<int>(random() % 20);
    const int64_t lengths[] = {0, 1, 15, 17, 64, 1000, 4097, 70001};
    for (int p = 0; p < 5; ++p)
      trial.phases.push_back(
          {.layout = {.floats = lengths[random() % 8], .counts = 2, .maxima = p % 3}, .all_reduces = {3}});
    std::vector<int> ranks(members);
    std::iota(ranks.begin(), ranks.end(), 0);
    std::vector<Generation> generations(1);
    generations[0].ranks = ranks;
    generations[0].ranges = random_ranges(trial.shards, members, random());
    Crew crew(trial, std::move(generations));
    crew.begin_all({});
    for (const int rank : ranks) ASSERT_EQ(crew.end(rank), 0) << "round " << round;
    crew.expect_all_bits(ranks);
    ASSERT_EQ(crew.logged("form"), members);
    if (HasFatalFailure()) return;
  }
}

Generation generation(std::vector<int> ranks, std::vector<ShardRange> ranges, int begins_at = kNoNews) {
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

TEST(Nccl, HostMemoryServesWhileTheCommunicatorForms) {
  Crew crew(some_phases(60), generations(generation({0, 1, 2}, kThree)));
  crew.begin_all({.faults = "forms-late", .waits = false});
  for (const int rank : {0, 1, 2}) ASSERT_EQ(crew.end(rank), 0);
  crew.expect_all_bits({0, 1, 2});
  EXPECT_GT(crew.logged("group"), 0);
  EXPECT_LT(crew.logged("group"), 3 * 2 * 48) << "48 phases have floats: the first of them went through host memory";
}

TEST(Nccl, EverybodyUsesHostMemoryIfOneRankIsRefusedAndOneOfThemTellsWhy) {
  for (const char* faults : {"duplicate", "duplicate rank=1"}) {
    Crew crew(some_phases(30), generations(generation({0, 1, 2}, kThree)));
    crew.begin_all({.faults = faults, .required = false});
    for (const int rank : {0, 1, 2}) ASSERT_EQ(crew.end(rank), 0);
    crew.expect_all_bits({0, 1, 2});
    EXPECT_EQ(crew.records().notes, 1);
    EXPECT_NE(std::string(crew.records().note).find("Duplicate GPU detected"), std::string::npos)
        << crew.records().note;
    EXPECT_EQ(crew.logged("group"), 0);
    EXPECT_EQ(crew.logged("abort"), 3) << "what had formed is given back";
  }
}

TEST(Nccl, WithoutALibraryOnOneWorkerNobodyBeginsToForm) {
  Crew crew(some_phases(8), generations(generation({0, 1, 2}, kThree)));
  crew.begin_all({.required = false, .without_library = 2});
  for (const int rank : {0, 1, 2}) ASSERT_EQ(crew.end(rank), 0);
  crew.expect_all_bits({0, 1, 2});
  EXPECT_EQ(crew.records().notes, 1);
  EXPECT_NE(std::string(crew.records().note).find("there is no NCCL"), std::string::npos) << crew.records().note;
  EXPECT_EQ(crew.logged("form"), 0);
}

TEST(Nccl, ACommunicatorThatNeverFormsIsGivenUp) {
  Crew crew(some_phases(12), generations(generation({0, 1, 2}, kThree)));
  Way way{.faults = "never-forms", .faults_of = 1, .required = false};
  way.times.form_seconds = 0;
  crew.begin_all(way);
  for (const int rank : {0, 1, 2}) ASSERT_EQ(crew.end(rank), 0);
  crew.expect_all_bits({0, 1, 2});
  EXPECT_NE(std::string(crew.records().note).find("had not formed"), std::string::npos) << crew.records().note;
}

TEST(Nccl, ARefusalEndsARunThatAllowsNothingElse) {
  Crew crew(some_phases(12), generations(generation({0, 1}, kTwo)));
  crew.begin_all({.faults = "no-id"});
  EXPECT_EQ(crew.end(0), kRefused);
  EXPECT_NE(std::string(crew.records().words).find("no socket interface"), std::string::npos) << crew.records().words;
  crew.kill_and_reap(1, 0);  // as the launcher does when it learns that the run can't go on
}

TEST(Nccl, ADeathInTheMiddleOfASumShrinksTheCommunicator) {
  for (const int victim : {0, 1, 2}) {
    std::vector<int> rest = {0, 1, 2};
    rest.erase(rest.begin() + victim);
    Crew crew(some_phases(16), generations(generation({0, 1, 2}, kThree), generation(rest, kTwo)));
    crew.begin_all({.faults = "dies-in-group at=7", .faults_of = victim});
    EXPECT_EQ(crew.end(victim), 128 + SIGKILL);
    crew.reap(victim, 0);
    for (const int rank : rest) ASSERT_EQ(crew.end(rank), 0) << "without " << victim;
    crew.expect_all_bits(rest);
    EXPECT_EQ(crew.logged("shrink"), 2);
    EXPECT_EQ(crew.logged("form"), 3) << "nobody formed another";
    if (HasFatalFailure()) return;
  }
}

TEST(Nccl, WhereShrinkingFailsOnOneAllFormAnother) {
  for (const int fails_on : {0, 2}) {
    Crew crew(some_phases(16), generations(generation({0, 1, 2}, kThree), generation({0, 2}, kTwo)));
    Way way{.faults = "dies-in-group at=7", .faults_of = 1};
    crew.begin(1, way);
    way = {.faults = "shrink-fails", .faults_of = fails_on};
    crew.begin(0, way);
    crew.begin(2, way);
    EXPECT_EQ(crew.end(1), 128 + SIGKILL);
    crew.reap(1, 0);
    for (const int rank : {0, 2}) ASSERT_EQ(crew.end(rank), 0);
    crew.expect_all_bits({0, 2});
    EXPECT_EQ(crew.logged("form"), 5);
    if (HasFatalFailure()) return;
  }
}

TEST(Nccl, AReplacementJoinsAndAllFormAnother) {
  Crew crew(some_phases(20),
            generations(generation({0, 1, 2}, kThree), generation({0, 2}, kTwo), generation({0, 1, 2}, kThree, 14)));
  crew.begin_all({.faults = "dies-in-group at=7", .faults_of = 1});
  EXPECT_EQ(crew.end(1), 128 + SIGKILL);
  crew.reap(1, 0);
  crew.begin(1, {}, 2, 14);
  for (const int rank : {0, 1, 2}) ASSERT_EQ(crew.end(rank), 0);
  crew.expect_all_bits({0, 2});
  EXPECT_EQ(crew.logged("form"), 6);
}

TEST(Nccl, MovedShardsKeepTheCommunicator) {
  Crew crew(some_phases(20),
            generations(generation({0, 1, 2}, kThree), generation({0, 1, 2}, {{0, 1}, {1, 5}, {5, 6}}, 9)));
  crew.begin_all({});
  for (const int rank : {0, 1, 2}) ASSERT_EQ(crew.end(rank), 0);
  crew.expect_all_bits({0, 1, 2});
  EXPECT_EQ(crew.logged("form"), 3);
  EXPECT_EQ(crew.logged("shrink"), 0);
}

// One survivor hears of both deaths at once, the other of one after the other.
TEST(Nccl, ASecondDeathWhileTheCommunicatorShrinks) {
  Crew crew(some_phases(16, 8),
            generations(generation({0, 1, 2, 3}, {{0, 2}, {2, 4}, {4, 6}, {6, 8}}),
                        generation({0, 1, 3}, {{0, 2}, {2, 4}, {4, 8}}), generation({0, 3}, {{0, 4}, {4, 8}})));
  Way way;
  crew.begin(0, way);
  crew.begin(3, way);
  way.faults = "dies-in-group at=7";
  crew.begin(2, way);
  way.faults = "dies-in-group at=9";
  crew.begin(1, way);
  EXPECT_EQ(crew.end(2), 128 + SIGKILL);
  crew.reap(2, 0);
  EXPECT_EQ(crew.end(1), 128 + SIGKILL);
  crew.reap(1, 1);
  for (const int rank : {0, 3}) ASSERT_EQ(crew.end(rank), 0);
  crew.expect_all_bits({0, 3});
}

TEST(Nccl, AnAbortThatNeverReturnsEndsTheProcessAndTheOthersGoOn) {
  Crew crew(some_phases(16),
            generations(generation({0, 1, 2}, kThree), generation({0, 2}, kTwo), generation({0}, {{0, 6}})));
  Way way{.faults = "dies-in-group at=7", .faults_of = 1};
  crew.begin(0, way);
  crew.begin(1, way);
  way = {.faults = "shrink-fails; abort-hangs", .faults_of = 2};
  way.times.abort_seconds = 0.2;
  crew.begin(2, way);
  EXPECT_EQ(crew.end(1), 128 + SIGKILL);
  crew.reap(1, 0);
  EXPECT_EQ(crew.end(2), kStuck);
  EXPECT_STREQ(crew.records().words, "NCCL's abort did not come back in 0.2 s");
  crew.reap(2, 1);
  EXPECT_EQ(crew.end(0), 0);
  crew.expect_all_bits({0});
}

TEST(Nccl, AnErrorThatNoDeathExplainsEndsTheWorkerAndTheOthersGoOn) {
  Crew crew(some_phases(16), generations(generation({0, 1, 2}, kThree), generation({0, 2}, kTwo)));
  Way way{.faults = "group-fails at=5", .faults_of = 1};
  way.times.blame_seconds = 0.1;
  crew.begin_all(way);
  EXPECT_EQ(crew.end(1), 1);
  EXPECT_NE(std::string(crew.records().words).find("Connection reset by peer"), std::string::npos);
  crew.reap(1, 0);
  for (const int rank : {0, 2}) ASSERT_EQ(crew.end(rank), 0);
  crew.expect_all_bits({0, 2});
}

TEST(Nccl, AnErrorBeforeTheNewsOfADeathIsTakenForIt) {
  Crew crew(some_phases(16), generations(generation({0, 1, 2}, kThree), generation({0, 2}, kTwo)));
  Way way{.faults = "dies-in-group at=7", .faults_of = 1};
  crew.begin(1, way);
  crew.begin(2, way);
  crew.begin(0, {.faults = "group-fails at=7"});
  EXPECT_EQ(crew.end(1), 128 + SIGKILL);
  crew.until_logged("group", 7, 0);
  crew.reap(1, 0);
  for (const int rank : {0, 2}) ASSERT_EQ(crew.end(rank), 0);
  crew.expect_all_bits({0, 2});
}

TEST(Nccl, AHangThatNobodyDiedOfEndsWhenOneIsFenced) {
  Crew crew(some_phases(16), generations(generation({0, 1, 2}, kThree), generation({0, 2}, kTwo)));
  crew.begin_all({.faults = "group-hangs at=5", .faults_of = 0});
  crew.until_logged("group", 5, 0);
  crew.kill_and_reap(1, 0);
  for (const int rank : {0, 2}) ASSERT_EQ(crew.end(rank), 0);
  crew.expect_all_bits({0, 2});
}

TEST(Nccl, CommunicatorsThatCarryNothingTwiceInARowAreNotTriedAThirdTime) {
  Crew crew(some_phases(16, 8),
            generations(generation({0, 1, 2, 3}, {{0, 2}, {2, 4}, {4, 6}, {6, 8}}),
                        generation({0, 1, 3}, {{0, 2}, {2, 4}, {4, 8}}), generation({0, 3}, {{0, 4}, {4, 8}})));
  const Way way{.faults = "group-hangs at=1; group-hangs at=2", .required = false};  // one in each communicator
  for (const int rank : {0, 1, 2, 3}) crew.begin(rank, way);
  crew.until_logged("group", 4);
  crew.kill_and_reap(2, 0);
  crew.until_logged("group", 4 + 3);
  crew.kill_and_reap(1, 1);
  for (const int rank : {0, 3}) ASSERT_EQ(crew.end(rank), 0);
  crew.expect_all_bits({0, 3});
  EXPECT_EQ(crew.logged("group"), 7);
  EXPECT_NE(std::string(crew.records().note).find("came to nothing"), std::string::npos) << crew.records().note;
}

}  // namespace
}  // namespace tandem
