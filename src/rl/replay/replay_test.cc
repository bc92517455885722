// n-step transitions against a reference that keeps whole episodes and has no ring.
#include "rl/replay/replay.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace tandem {
namespace {

struct Ring {
  explicit Ring(const ReplayShape& shape)
      : shape(shape),
        seen(shape.leaves() * shape.observation_size),
        rows(shape.leaves()),
        written(shape.environments),
        sums(PriorityTree::words(shape.leaves())) {}
  Replay view() { return {shape, seen.data(), rows.data(), written.data(), sums}; }
  ReplayShape shape;
  std::vector<float> seen;
  std::vector<ReplayRow> rows;
  std::vector<int64_t> written, sums;
};

struct Decision {
  std::vector<float> observation;
  int32_t action;
  float reward;
  End end;
  std::vector<float> last;
};

// What must be drawable after these steps: by the number in the observation.
struct Expected {
  float reward, discount, after;
  int32_t action;
};
std::map<float, Expected> reference(const std::vector<Decision>& all, const ReplayShape& shape) {
  std::map<float, Expected> result;
  int64_t rows_used = 0;  // from the newest back
  std::vector<int64_t> kept;
  for (int64_t i = static_cast<int64_t>(all.size()) - 1; i >= 0; --i) {
    rows_used += all[i].end == End::kTruncated ? 2 : 1;
    if (rows_used > shape.rows) break;
    kept.push_back(i);
  }
  for (int64_t i : kept) {
    Expected e{0, 1, 0, all[i].action};
    bool complete = false;
    for (int64_t k = 0; k <= shape.n_step && i + k < static_cast<int64_t>(all.size()); ++k) {
      const Decision& d = all[i + k];
      if (k == shape.n_step) {
        e.after = d.observation[0];
        complete = true;
        break;
      }
      e.reward += e.discount * d.reward;
      e.discount *= static_cast<float>(shape.gamma);
      if (d.end == End::kNone) continue;
      if (d.end == End::kTerminated) e.discount = 0;
      if (d.end == End::kTruncated) e.after = d.last[0];
      complete = true;
      break;
    }
    if (complete) result[all[i].observation[0]] = e;
  }
  return result;
}

void compare_with_reference(int64_t n_step, int64_t rows, double over, double cut) {
  const ReplayShape shape{2, rows, 3, n_step, 0.9};
  Ring ring(shape);
  std::mt19937_64 random(static_cast<uint64_t>(n_step * 1000 + rows));
  std::vector<std::vector<Decision>> all(2);
  float number = 1;
  for (int step = 0; step < 120; ++step) {
    for (int64_t e = 0; e < 2; ++e) {
      const double u = std::uniform_real_distribution<double>(0, 1)(random);
      Decision d{{number, 2, 3},
                 static_cast<int32_t>(random() % 5),
                 static_cast<float>(random() % 100) / 10,
                 u < over         ? End::kTerminated
                 : u < over + cut ? End::kTruncated
                                  : End::kNone,
                 {number + 0.5f, 0, 0}};
      number += 1;
      ring.view().add(e, d.observation.data(), d.action, d.reward, d.end, d.last.data(), 7);
      all[e].push_back(d);
    }
    Replay replay = ring.view();
    for (int64_t e = 0; e < 2; ++e) {
      const auto want = reference(all[e], shape);
      int64_t drawable = 0;
      for (int64_t row = e * rows; row < (e + 1) * rows; ++row) {
        if (replay.priorities().get(row) == 0) continue;
        ++drawable;
        float before[3], after[3];
        const Transition t = replay.take(row, before, after);
        const auto found = want.find(before[0]);
        ASSERT_NE(found, want.end()) << "a row that can't be drawn yet, or is gone: " << before[0];
        EXPECT_FLOAT_EQ(t.reward, found->second.reward);
        EXPECT_FLOAT_EQ(t.discount, found->second.discount);
        EXPECT_EQ(t.action, found->second.action);
        if (t.discount > 0) {
          EXPECT_EQ(after[0], found->second.after);
        }
      }
      EXPECT_EQ(drawable, static_cast<int64_t>(want.size()));
    }
  }
}

TEST(Replay, TransitionsOfNStepsAreThoseOfWholeEpisodes) {
  for (int64_t n : {1, 2, 3, 5})
    for (int64_t rows : {7, 8, 20, 1000}) compare_with_reference(n, rows, 0, 0);
}
TEST(Replay, AnEpisodesEndCutsTheReturnAndWhatFollowsIsAnotherOne) {
  for (int64_t n : {1, 2, 3, 5})
    for (int64_t rows : {7, 20, 1000}) compare_with_reference(n, rows, 0.3, 0);
}
TEST(Replay, ACutEpisodeIsWorthWhatItsLastObservationIsWorth) {
  for (int64_t n : {1, 3, 5})
    for (int64_t rows : {8, 20, 1000}) compare_with_reference(n, rows, 0.15, 0.2);
}

TEST(Replay, ARowThatWasGivenAPriorityKeepsItUntilItIsOverwritten) {
  Ring ring({1, 10, 1, 2, 1});
  for (int i = 0; i < 5; ++i) {
    const float seen = static_cast<float>(i);
    ring.view().add(0, &seen, 0, 0, End::kNone, nullptr, 7);
  }
  ring.view().priorities().set(1, 99);
  for (int i = 5; i < 11; ++i) {
    const float seen = static_cast<float>(i);
    ring.view().add(0, &seen, 0, 0, End::kNone, nullptr, 7);
  }
  EXPECT_EQ(ring.view().priorities().get(1), 99);
  const float seen = 11;
  ring.view().add(0, &seen, 0, 0, End::kNone, nullptr, 7);
  EXPECT_EQ(ring.view().priorities().get(1), 0);
}

}  // namespace
}  // namespace tandem
