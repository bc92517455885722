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
  const Experience e = Experience::read({files.write("f", text)}, kShape, 0, {}, "");
  std::vector<int64_t> segments;
  std::vector<End> ends;
  e.each(false, [&](const ExperienceRow& row) {
    segments.push_back(row.segment);
    ends.push_back(row.end);
    EXPECT_EQ(row.next != nullptr, row.end != End::kNone);
  });
  EXPECT_EQ(segments, (std::vector<int64_t>{0, 0, 0, 1, 2}));
  EXPECT_EQ(ends, (std::vector<End>{End::kNone, End::kNone, End::kTerminated, End::kTruncated, End::kTruncated}));
  EXPECT_EQ(e.read_of()[0].rows_of[1], 3);
}

TEST(Experience, CutsALongSuccessionIntoSegments) {
  Files files;
  std::string text;
  for (int t = 0; t < 80; ++t) text += line(0, 1, static_cast<float>(t), false);
  const Experience e = Experience::read({files.write("f", text)}, kShape, 0, {}, "");
  EXPECT_EQ(e.segments(), 3);
  EXPECT_EQ(e.rows(), 80);
}

std::set<float> episodes_of(const Experience& e, bool held_out) {
  std::set<float> out;
  e.each(held_out, [&](const ExperienceRow& row) { out.insert(row.state[0]); });
  return out;
}

// Episodes of 70 rows: three segments each.
std::string long_episodes(int first, int last) {
  std::string text;
  for (int s = first; s < last; ++s)
    for (int t = 0; t < 70; ++t) text += line(0, static_cast<float>(s), static_cast<float>(t), t == 69);
  return text;
}

TEST(Experience, HoldsOutWholeEpisodesAndNeverLearnsFromThem) {
  Files files;
  const Experience e = Experience::read({files.write("f", long_episodes(0, 200))}, kShape, 0, {0.2}, "");
  EXPECT_EQ(e.episodes(), 200);
  EXPECT_EQ(e.segments(), 600);
  EXPECT_NEAR(static_cast<double>(e.held_out_episodes()), 40, 20);
  EXPECT_EQ(e.held_out_rows(), 70 * e.held_out_episodes());
  const std::set<float> learned = episodes_of(e, false), held = episodes_of(e, true);
  EXPECT_EQ(learned.size() + held.size(), 200u);
  for (const float episode : held) EXPECT_FALSE(learned.contains(episode)) << episode;
  // What a learner's replay gets is the learned ones alone.
  const ReplayShape shape{1, 20000, 2, 1, 0.9};
  std::vector<float> memory(static_cast<size_t>(shape.leaves() * 2));
  std::vector<ReplayRow> rows(static_cast<size_t>(shape.leaves()));
  std::vector<int64_t> written(1), sums(static_cast<size_t>(PriorityTree::words(shape.leaves())));
  Replay replay(shape, memory.data(), rows.data(), written.data(), sums);
  e.fill(replay, 0, 1, 0, 1, 5);
  std::set<float> stored;
  for (int64_t leaf = 0; leaf < written[0]; ++leaf) stored.insert(memory[static_cast<size_t>(leaf) * 2]);
  EXPECT_EQ(stored, learned);
}

TEST(Experience, AnEpisodeIsOnOneSideInEveryFileAndASmallerShareHoldsOutSomeOfTheSame) {
  Files files;
  const auto early = files.write("early", long_episodes(0, 61)), late = files.write("late", long_episodes(40, 100));
  const auto held = [&](const std::vector<std::filesystem::path>& names, double share) {
    return episodes_of(Experience::read(names, kShape, 0, {share}, ""), true);
  };
  const std::set<float> both = held({early, late}, 0.1), first = held({early}, 0.1), second = held({late}, 0.1);
  std::set<float> joined = first;
  joined.insert(second.begin(), second.end());
  EXPECT_EQ(joined, both);
  EXPECT_FALSE(both.empty());
  for (const float episode : held({early, late}, 0.03)) EXPECT_TRUE(both.contains(episode));
}

TEST(Experience, OlderRunsKeepApartEverySoManySegments) {
  Files files;
  std::string text;
  for (int s = 0; s < 100; ++s) text += line(0, static_cast<float>(s), 0, true);
  const Experience e = Experience::read({files.write("f", text)}, kShape, 0, {0.1, Split::kSegments}, "");
  EXPECT_EQ(e.held_out_rows(), 10);
  EXPECT_TRUE(e.held_out(9));
  EXPECT_FALSE(e.held_out(0));
}

TEST(Experience, ASuccessionWithoutAnEndIsCutIntoEpisodes) {
  Files files;
  std::string text;
  for (int t = 0; t < 3000; ++t) text += line(0, 1, static_cast<float>(t), false);
  EXPECT_EQ(Experience::read({files.write("f", text)}, kShape, 0, {}, "").episodes(), 3);
}

TEST(Experience, FindsSizesThatTheShapeLeavesOpen) {
  Files files;
  std::string text;
  for (int t = 0; t < 7; ++t) text += line(0, 1, static_cast<float>(t), t == 6);
  const Experience e = Experience::read({files.write("f", text)}, HistoryShape{0, 0, {}}, 0, {}, "");
  EXPECT_EQ(e.shape().states, 2);
  EXPECT_EQ(e.shape().actions, 3);
  EXPECT_EQ(e.rows(), 7);
}

TEST(Experience, DealsEveryRowToOneRingOfOneShard) {
  Files files;
  std::string text;
  for (int s = 0; s < 40; ++s)
    for (int t = 0; t < 4; ++t) text += line(0, static_cast<float>(s), static_cast<float>(t), t == 3);
  const Experience e = Experience::read({files.write("f", text)}, kShape, 0, {}, "");
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
  const std::string digest = Experience::read({good}, kShape, 0, {}, "").digest();
  EXPECT_EQ(Experience::read({good}, kShape, 0, {}, digest).rows(), 1);
  EXPECT_THROW(Experience::read({files.dir.path() / "none"}, kShape, 0, {}, ""), IoError);
  EXPECT_THROW(Experience::read({files.dir.path()}, kShape, 0, {}, ""), IoError);
  EXPECT_THROW(Experience::read({"/dev/zero"}, kShape, 0, {}, ""), ConfigError) << "it never ends";
  EXPECT_THROW(Experience::read(experience_files(","), kShape, 0, {}, ""), ConfigError);
  EXPECT_THROW(Experience::read({files.write("bad", "{}\n")}, kShape, 0, {}, ""), ConfigError);
  EXPECT_THROW(Experience::read({good}, kShape, 1, {}, ""), ConfigError) << "nothing of that agent";
  files.write("good", line(0, 2, 0, true));
  EXPECT_THROW(Experience::read({good}, kShape, 0, {}, digest), ConfigError) << "the file changed";
}

}  // namespace
}  // namespace tandem
