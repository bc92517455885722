#include "rl/held_out.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "base/temp_dir.h"
#include "rl/replay/experience.h"

namespace tandem {
namespace {

const HistoryShape kTwoNumbers{2, 3, {}};

// Ten rows an episode, states (episode, time); `rows` of them: with fewer than ten it is open.
std::string recorded(int first, int last, int rows = 10) {
  std::string text;
  for (int e = first; e < last; ++e)
    for (int t = 0; t < rows; ++t) {
      const float state[2] = {static_cast<float>(e), static_cast<float>(t)}, next[2] = {state[0], state[1] + 1};
      text += history_line("", {0, t % 3, state[1], t == 9, state, next});
    }
  return text;
}

struct LoggedFiles {
  TempDir dir;
  int count = 0;
  std::filesystem::path write(const std::string& text) {
    const auto file = dir.path() / std::to_string(++count);
    std::ofstream(file) << text;
    return file;
  }
  Experience read(const std::vector<std::string>& texts, double share, Split split = Split::kEpisodes) {
    std::vector<std::filesystem::path> files;
    for (const std::string& text : texts) files.push_back(write(text));
    return Experience::read(files, kTwoNumbers, 0, {share, split}, "");
  }
};

std::vector<float> numbers_of(const LoggedEpisodes& log) {
  std::vector<float> out;
  for (const int64_t start : log.starts) out.push_back(log.states[static_cast<size_t>(start * 2)]);
  return out;
}

TEST(HeldOut, AnEpisodeThatSeveralFilesHaveJudgesOnce) {
  LoggedFiles files;
  const LoggedEpisodes once = held_out_episodes(files.read({recorded(0, 60)}, 0.3));
  ASSERT_GT(once.episodes(), 5);
  const LoggedEpisodes copied = held_out_episodes(files.read({recorded(0, 60), recorded(0, 60)}, 0.3));
  EXPECT_EQ(copied.states, once.states);
  EXPECT_EQ(copied.starts, once.starts);
  const LoggedEpisodes grown = held_out_episodes(files.read({recorded(0, 40), recorded(20, 60)}, 0.3));
  EXPECT_EQ(numbers_of(grown), numbers_of(once));
  LoggedEpisodes two_days = held_out_episodes(files.read({recorded(0, 40)}, 0.3));
  two_days.append(held_out_episodes(files.read({recorded(20, 60)}, 0.3)));
  EXPECT_EQ(numbers_of(two_days), numbers_of(once));
}

TEST(HeldOut, RepeatsWithinAFileStayButAreOneAmongDifferentEpisodes) {
  LoggedFiles files;
  const LoggedEpisodes log = held_out_episodes(files.read({recorded(0, 60) + recorded(0, 60)}, 0.3));
  EXPECT_EQ(log.episodes(), 2 * log.different());
}

TEST(HeldOut, WhatAnEarlierTrainingWithASmallerShareLearnedFromDoesNotJudge) {
  LoggedFiles files;
  const Experience before = files.read({recorded(0, 60)}, 0.05), now = files.read({recorded(0, 80)}, 0.4);
  LearnedEpisodes learned;
  learned.add(now);
  LoggedEpisodes log = held_out_episodes(now);
  EXPECT_EQ(learned.leave_out_of(log), 0) << "its own split leaks nothing";
  learned.add(before);
  EXPECT_GT(learned.leave_out_of(log), 10);
  const std::vector<float> kept = numbers_of(log), first = numbers_of(held_out_episodes(before));
  for (const float episode : kept) EXPECT_TRUE(episode >= 60 || std::ranges::find(first, episode) != first.end());
  EXPECT_TRUE(std::ranges::any_of(kept, [](float episode) { return episode >= 60; }));
}

TEST(HeldOut, AnEpisodeThatWasOpenAtTheEndOfAnEarlierFileDoesNotJudgeWhereItsBeginningWasLearnedFrom) {
  LoggedFiles files;
  const Experience yesterday = files.read({recorded(0, 80, 4)}, 0.3), today = files.read({recorded(0, 80)}, 0.3);
  const auto held = [](const Experience& experience) { return held_out_episodes(experience); };
  LearnedEpisodes learned;
  learned.add(yesterday);
  LoggedEpisodes log = held(today);
  const auto open = numbers_of(held(yesterday));
  learned.leave_out_of(log);
  EXPECT_FALSE(log.starts.empty());
  for (const float episode : numbers_of(log)) EXPECT_TRUE(std::ranges::find(open, episode) != open.end());
  // The other way: held out while it was open, learned from when it was whole.
  LearnedEpisodes whole;
  whole.add(today);
  LoggedEpisodes earlier = held(yesterday);
  const auto today_held = numbers_of(held(today));
  EXPECT_GT(whole.leave_out_of(earlier), 0);
  for (const float episode : numbers_of(earlier))
    EXPECT_TRUE(std::ranges::find(today_held, episode) != today_held.end());
}

TEST(HeldOut, EpisodesOfWhichSegmentsWereLearnedFromDoNotJudge) {
  LoggedFiles files;
  LearnedEpisodes learned;
  learned.add(files.read({recorded(0, 60)}, 0, Split::kSegments));
  LoggedEpisodes log = held_out_episodes(files.read({recorded(0, 60)}, 0.3));
  learned.leave_out_of(log);
  EXPECT_EQ(log.episodes(), 0);
}

}  // namespace
}  // namespace tandem
