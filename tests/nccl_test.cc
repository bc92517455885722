// The combine over NCCL, without GPUs: real processes, host memory as the GPU's, libfake_nccl.so as NCCL.
#include <random>

#include "crew.h"
#include "reduce/nccl_transport.h"

namespace tandem {
namespace {

using namespace trial;

struct Way {  // how a trial is run
  std::string faults;
  int faults_of = -1;  // the rank that has them; -1: all
  bool waits = true, required = true;
  std::string library = FAKE_NCCL_LIBRARY;
  int without_library = -1;
  NcclTimes times{.form_seconds = 600, .abort_seconds = 600, .blame_seconds = 600};
};

class NcclSide : public Side {
 public:
  NcclSide(int rank, const Way& way, Records& records, const std::string& log) {
    setenv("FAKE_NCCL", way.faults_of < 0 || way.faults_of == rank ? way.faults.c_str() : "", 1);
    setenv("FAKE_NCCL_LOG", log.c_str(), 1);
    NcclTransport::Options options;
    options.library = way.without_library == rank ? "/nowhere/libnccl.so.2" : way.library;
    options.required = way.required;
    options.waits = way.waits;
    options.times = way.times;
    options.note = [&records](const std::string& words) {
      records.notes.fetch_add(1);
      keep_words(records.note, words);
    };
    options.log = [](const std::string&) {};
    options.stuck = [&records](const std::string& words) {
      keep_words(records.words, words);
      _exit(kStuck);
    };
    transport_ = std::make_unique<NcclTransport>(cpu_device(), NcclGpu{.stream = nullptr, .idle = [] { return true; }},
                                                 std::move(options));
  }
  std::unique_ptr<Combine> combine(const LinkMembers& members, std::unique_ptr<Combine> inner, const Generation&,
                                   const SharedMemory&, const Watch& watch) override {
    return transport_->combine(members, std::move(inner), watch);
  }

 private:
  std::unique_ptr<NcclTransport> transport_;
};

class NcclCrew : public Crew {
 public:
  using Crew::Crew;
  pid_t begin(int rank, const Way& way, size_t generation = 0, int phase = 0) {
    return Crew::begin(
        rank, [this, way](int r) { return std::make_unique<NcclSide>(r, way, records(), log()); }, generation, phase);
  }
  void begin_all(const Way& way) {
    for (const int rank : first_ranks()) begin(rank, way);
  }
};

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
    NcclCrew crew(trial, std::move(generations));
    crew.begin_all({});
    for (const int rank : ranks) ASSERT_EQ(crew.end(rank), 0) << "round " << round;
    crew.expect_all_bits(ranks);
    ASSERT_EQ(crew.logged("form"), members);
    if (HasFatalFailure()) return;
  }
}

TEST(Nccl, HostMemoryServesWhileTheCommunicatorForms) {
  NcclCrew crew(some_phases(60), generations(generation({0, 1, 2}, kThree)));
  crew.begin_all({.faults = "forms-late", .waits = false});
  for (const int rank : {0, 1, 2}) ASSERT_EQ(crew.end(rank), 0);
  crew.expect_all_bits({0, 1, 2});
  EXPECT_GT(crew.logged("group"), 0);
  EXPECT_LT(crew.logged("group"), 3 * 2 * 48) << "48 phases have floats: the first of them went through host memory";
}

TEST(Nccl, EverybodyUsesHostMemoryIfOneRankIsRefusedAndOneOfThemTellsWhy) {
  for (const char* faults : {"duplicate", "duplicate rank=1"}) {
    NcclCrew crew(some_phases(30), generations(generation({0, 1, 2}, kThree)));
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
  NcclCrew crew(some_phases(8), generations(generation({0, 1, 2}, kThree)));
  crew.begin_all({.required = false, .without_library = 2});
  for (const int rank : {0, 1, 2}) ASSERT_EQ(crew.end(rank), 0);
  crew.expect_all_bits({0, 1, 2});
  EXPECT_EQ(crew.records().notes, 1);
  EXPECT_NE(std::string(crew.records().note).find("there is no NCCL"), std::string::npos) << crew.records().note;
  EXPECT_EQ(crew.logged("form"), 0);
}

TEST(Nccl, ACommunicatorThatNeverFormsIsGivenUp) {
  NcclCrew crew(some_phases(12), generations(generation({0, 1, 2}, kThree)));
  Way way{.faults = "never-forms", .faults_of = 1, .required = false};
  way.times.form_seconds = 0;
  crew.begin_all(way);
  for (const int rank : {0, 1, 2}) ASSERT_EQ(crew.end(rank), 0);
  crew.expect_all_bits({0, 1, 2});
  EXPECT_NE(std::string(crew.records().note).find("had not formed"), std::string::npos) << crew.records().note;
}

TEST(Nccl, ARefusalEndsARunThatAllowsNothingElse) {
  NcclCrew crew(some_phases(12), generations(generation({0, 1}, kTwo)));
  crew.begin_all({.faults = "no-id"});
  EXPECT_EQ(crew.end(0), kRefused);
  EXPECT_NE(std::string(crew.records().words).find("no socket interface"), std::string::npos) << crew.records().words;
  crew.kill_and_reap(1, 0);  // as the launcher does when it learns that the run can't go on
}

TEST(Nccl, ADeathInTheMiddleOfASumShrinksTheCommunicator) {
  for (const int victim : {0, 1, 2}) {
    std::vector<int> rest = {0, 1, 2};
    rest.erase(rest.begin() + victim);
    NcclCrew crew(some_phases(16), generations(generation({0, 1, 2}, kThree), generation(rest, kTwo)));
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
    NcclCrew crew(some_phases(16), generations(generation({0, 1, 2}, kThree), generation({0, 2}, kTwo)));
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
  NcclCrew crew(some_phases(20), generations(generation({0, 1, 2}, kThree), generation({0, 2}, kTwo),
                                             generation({0, 1, 2}, kThree, 14)));
  crew.begin_all({.faults = "dies-in-group at=7", .faults_of = 1});
  EXPECT_EQ(crew.end(1), 128 + SIGKILL);
  crew.reap(1, 0);
  crew.begin(1, {}, 2, 14);
  for (const int rank : {0, 1, 2}) ASSERT_EQ(crew.end(rank), 0);
  crew.expect_all_bits({0, 2});
  EXPECT_EQ(crew.logged("form"), 6);
}

TEST(Nccl, MovedShardsKeepTheCommunicator) {
  NcclCrew crew(some_phases(20),
                generations(generation({0, 1, 2}, kThree), generation({0, 1, 2}, {{0, 1}, {1, 5}, {5, 6}}, 9)));
  crew.begin_all({});
  for (const int rank : {0, 1, 2}) ASSERT_EQ(crew.end(rank), 0);
  crew.expect_all_bits({0, 1, 2});
  EXPECT_EQ(crew.logged("form"), 3);
  EXPECT_EQ(crew.logged("shrink"), 0);
}

// One survivor hears of both deaths at once, the other of one after the other.
TEST(Nccl, ASecondDeathWhileTheCommunicatorShrinks) {
  NcclCrew crew(some_phases(16, 8),
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
  NcclCrew crew(some_phases(16),
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
  NcclCrew crew(some_phases(16), generations(generation({0, 1, 2}, kThree), generation({0, 2}, kTwo)));
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
  NcclCrew crew(some_phases(16), generations(generation({0, 1, 2}, kThree), generation({0, 2}, kTwo)));
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
  NcclCrew crew(some_phases(16), generations(generation({0, 1, 2}, kThree), generation({0, 2}, kTwo)));
  crew.begin_all({.faults = "group-hangs at=5", .faults_of = 0});
  crew.until_logged("group", 5, 0);
  crew.kill_and_reap(1, 0);
  for (const int rank : {0, 2}) ASSERT_EQ(crew.end(rank), 0);
  crew.expect_all_bits({0, 2});
}

TEST(Nccl, CommunicatorsThatCarryNothingTwiceInARowAreNotTriedAThirdTime) {
  NcclCrew crew(some_phases(16, 8),
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
