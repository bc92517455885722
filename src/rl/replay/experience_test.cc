#include "rl/replay/experience.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "base/errors.h"
#include "base/temp_dir.h"

namespace tandem {
namespace {

const HistoryShape kShape{2, 3, {"a", "b"}};

// A line whose states are (episode, time): a row follows another where both say so.
std::string line(int agent, float episode, float time, bool done, bool jump = false) {
  const float state[2] = {episode, time}, next[2] = {episode, time + (jump ? 50.0f : 1.0f)};
  return history_line(kShape.agents[static_cast<size_t>(agent)],
                      {agent, static_cast<int32_t>(time) % 3, time, done, state, next});
}

struct Files {
  TempDir dir;
  std::filesystem::path write(const std::string& name, const std::string& text) {
    std::ofstream(dir.path() / name) << text;
    return dir.path() / name;
  }
};

TEST(Experience, JoinsRowsThatFollowEachOtherAndCutsElsewhere) {
  Files files;
  std::string text;
  for (int t = 0; t < 3; ++t) text += line(0, 1, static_cast<float>(t), t == 2) + line(1, 9, 0, true);
  text += line(0, 2, 0, false, true) + line(0, 2, 7, false);
  const Experience e = Experience::read({files.write("f", text)}, kShape, 0, 0, "");
  std::vector<int64_t> segments;
  std::vector<End> ends;
  e.each(false, [&](const ExperienceRow& row) {
    segments.push_back(row.segment);
    ends.push_back(row.end);
    EXPECT_EQ(row.next != nullptr, row.end != End::kNone);
  });
  EXPECT_EQ(segments, (std::vector<int64_t>{0, 0, 0, 1, 2}));
  EXPECT_EQ(ends, (std::vector<End>{End::kNone, End::kNone, End::kOver, End::kCut, End::kCut}));
  EXPECT_EQ(e.read_of()[0].rows_of[1], 3);
}

TEST(Experience, CutsALongSuccessionIntoSegments) {
  Files files;
  std::string text;
  for (int t = 0; t < 80; ++t) text += line(0, 1, static_cast<float>(t), false);
  const Experience e = Experience::read({files.write("f", text)}, kShape, 0, 0, "");
  EXPECT_EQ(e.segments(), 3);
  EXPECT_EQ(e.rows(), 80);
}

TEST(Experience, HoldsOutSoManySegmentsAndNeverLearnsFromThem) {
  Files files;
  std::string text;
  for (int s = 0; s < 100; ++s) text += line(0, static_cast<float>(s), 0, true);
  const Experience e = Experience::read({files.write("f", text)}, kShape, 0, 0.1, "");
  EXPECT_EQ(e.held_out_rows(), 10);
  std::set<float> learned, held;
  e.each(false, [&](const ExperienceRow& row) { learned.insert(row.state[0]); });
  e.each(true, [&](const ExperienceRow& row) { held.insert(row.state[0]); });
  EXPECT_EQ(learned.size(), 90u);
  for (float s : held) EXPECT_FALSE(learned.count(s));
}

TEST(Experience, DealsEveryRowToOneRingOfOneShard) {
  Files files;
  std::string text;
  for (int s = 0; s < 40; ++s)
    for (int t = 0; t < 4; ++t) text += line(0, static_cast<float>(s), static_cast<float>(t), t == 3);
  const Experience e = Experience::read({files.write("f", text)}, kShape, 0, 0, "");
  constexpr int kShards = 3, kFirst = 1, kRings = 2;
  const ReplayShape shape{kFirst + kRings, 64, 2, 1, 0.9};
  std::multiset<std::pair<float, float>> seen;
  for (int shard = 0; shard < kShards; ++shard) {
    std::vector<float> memory(static_cast<size_t>(shape.leaves() * 2));
    std::vector<ReplayRow> rows(static_cast<size_t>(shape.leaves()));
    std::vector<int64_t> written(3), sums(static_cast<size_t>(PriorityTree::words(shape.leaves())));
    Replay replay(shape, memory.data(), rows.data(), written.data(), sums);
    e.fill(replay, shard, kShards, kFirst, kRings, 5);
    EXPECT_EQ(written[0], 0) << "rings of live environments are left alone";
    EXPECT_GT(written[1], 0);
    EXPECT_GT(written[2], 0);
    for (int64_t leaf = 0; leaf < shape.leaves(); ++leaf) {
      if (replay.priorities().get(leaf) == 0) continue;
      float before[2], after[2];
      const Transition t = replay.take(leaf, before, after);
      EXPECT_EQ(t.reward, before[1]);
      EXPECT_EQ(t.discount, before[1] == 3 ? 0.0f : 0.9f);
      EXPECT_TRUE(t.discount == 0 || after[1] == before[1] + 1);
      seen.insert({before[0], before[1]});
    }
  }
  EXPECT_EQ(seen.size(), 160u);
  EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), 160u);
}

TEST(Experience, RefusesWhatItCannotLearnFrom) {
  Files files;
  const auto good = files.write("good", line(0, 1, 0, true));
  const std::string digest = Experience::read({good}, kShape, 0, 0, "").digest();
  EXPECT_EQ(Experience::read({good}, kShape, 0, 0, digest).rows(), 1);
  EXPECT_THROW(Experience::read({files.dir.path() / "none"}, kShape, 0, 0, ""), IoError);
  EXPECT_THROW(Experience::read({files.dir.path()}, kShape, 0, 0, ""), IoError);
  EXPECT_THROW(Experience::read({files.write("bad", "{}\n")}, kShape, 0, 0, ""), ConfigError);
  EXPECT_THROW(Experience::read({good}, kShape, 1, 0, ""), ConfigError) << "nothing of that agent";
  files.write("good", line(0, 2, 0, true));
  EXPECT_THROW(Experience::read({good}, kShape, 0, 0, digest), ConfigError) << "the file changed";
}

}  // namespace
}  // namespace tandem
