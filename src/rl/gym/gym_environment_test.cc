#include "rl/gym/gym_environment.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>

#include "base/errors.h"
#include "base/temp_dir.h"

namespace tandem {
namespace {

// Shows the action that it got, in its own dtype, and a sum of all of its episode.
constexpr const char* kEcho = R"python(
import gymnasium
import numpy as np
from gymnasium import spaces


class Echo(gymnasium.Env):
    def __init__(self, low, high, dtype="float32"):
        low, high = (np.array([float(x) for x in b], np.float64).reshape(-1, 1) for b in (low, high))
        self.action_space = spaces.Box(low.astype(dtype), high.astype(dtype), dtype=np.dtype(dtype))
        self.observation_space = spaces.Box(-1e9, 1e9, (low.size + 1,), np.float32)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.sum = self.np_random.random()
        return np.append(np.zeros(self.action_space.shape), self.sum).astype(np.float32), {}

    def step(self, action):
        assert action.shape == self.action_space.shape and action.dtype == self.action_space.dtype
        assert self.action_space.contains(action), action
        self.sum = 0.9 * self.sum + float(action.sum())
        return np.append(action, self.sum).astype(np.float32), 1.0, False, False, {}


class Several(Echo):
    def __init__(self):
        super().__init__([0], [1])
        self.action_space = spaces.MultiDiscrete([2, 3])
)python";

class ContinuousGym : public testing::Test {
 protected:
  ContinuousGym() {
    std::ofstream(dir_.path() / "echo.py") << kEcho;
    setenv("PYTHONPATH", dir_.path().c_str(), 1);
  }
  static std::unique_ptr<GymEnvironment> echo(const std::string& arguments, const std::string& name = "echo:Echo") {
    return std::make_unique<GymEnvironment>(GymOptions{.environment = name, .arguments = arguments, .live = 8}, 20,
                                            true);
  }
  // The observation after one step of one environment that begins anew.
  static std::vector<float> seen_after(const GymEnvironment& environment, const std::vector<float>& action) {
    std::vector<std::byte> state(static_cast<size_t>(environment.state_bytes()));
    std::vector<float> seen(static_cast<size_t>(environment.observation_size()));
    Outcome outcome;
    environment.reset(state.data(), 1, {1, 2, 3, 4}, nullptr);
    environment.step_continuous(state.data(), action.data(), &outcome, 1, {});
    environment.observe(state.data(), seen.data(), 1);
    seen.pop_back();
    return seen;
  }
  TempDir dir_;
};

TEST_F(ContinuousGym, MinusOneAndOneAreTheEndsOfEachNumbersRange) {
  const auto environment = echo(R"({"low": [-2, 0, 0.1], "high": [3, 10, 0.3]})");
  EXPECT_EQ(environment->actions(), 0);
  EXPECT_EQ(environment->action_size(), 3);
  EXPECT_EQ(seen_after(*environment, {-1, 0, 1}), (std::vector<float>{-2, 5, 0.3f}));
  EXPECT_EQ(seen_after(*environment, {0.5f, -0.5f, -1}), (std::vector<float>{1.75f, 2.5f, 0.1f}));
  EXPECT_EQ(seen_after(*environment, {9, -9, std::numeric_limits<float>::infinity()}),
            (std::vector<float>{3, 0, 0.3f}));
}

TEST_F(ContinuousGym, NumbersOfAnIntegerSpaceAreRounded) {
  const auto environment = echo(R"({"low": [0, -5], "high": [255, 5], "dtype": "int16"})");
  EXPECT_EQ(seen_after(*environment, {-1, 1}), (std::vector<float>{0, 5}));
  EXPECT_EQ(seen_after(*environment, {0.25f, 0.17f}), (std::vector<float>{159, 1}));
}

TEST_F(ContinuousGym, AStateGoesOnInAnotherProcessWithTheSameBits) {
  constexpr int64_t kCount = 5;
  const std::string arguments = R"({"low": [-2, 0], "high": [3, 10]})";
  const auto here = echo(arguments), there = echo(arguments);
  const size_t bytes = static_cast<size_t>(here->state_bytes());
  std::vector<std::byte> states(kCount * bytes);
  std::vector<float> actions(kCount * 2), one(kCount * 3), two(kCount * 3);
  std::vector<Outcome> outcomes(kCount);
  here->reset(states.data(), kCount, {1, 2, 3, 4}, nullptr);
  const auto draw = [&](uint64_t step) {
    for (size_t i = 0; i < actions.size(); ++i)
      actions[i] = static_cast<float>(random_normal(RandomKey{5, step, 0, 0}, i));
  };
  for (uint64_t step = 0; step < 7; ++step) {
    draw(step);
    here->step_continuous(states.data(), actions.data(), outcomes.data(), kCount, {});
  }
  std::vector<std::byte> moved = states;
  draw(7);
  here->step_continuous(states.data(), actions.data(), outcomes.data(), kCount, {});
  there->step_continuous(moved.data(), actions.data(), outcomes.data(), kCount, {});
  EXPECT_EQ(states, moved);
  here->observe(states.data(), one.data(), kCount);
  there->observe(moved.data(), two.data(), kCount);
  EXPECT_EQ(one, two);
  EXPECT_NE(one[2], one[5]) << "two environments of a batch are two";
  EXPECT_EQ(there->take_note(), "");
}

TEST_F(ContinuousGym, WhatCannotBeChosenFromIsRefusedWithWhatToDo) {
  const auto refused = [&](const std::string& arguments, const std::string& what, const std::string& advice,
                           const std::string& name = "echo:Echo") {
    try {
      echo(arguments, name);
      ADD_FAILURE() << "accepted: " << arguments;
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
      EXPECT_NE(error.todo().find(advice), std::string::npos) << error.todo();
      EXPECT_FALSE(error.why().empty());
    }
  };
  refused(R"({"low": [0, "-inf"], "high": [1, 1]})", "without bounds", "finite bounds");
  refused(R"({"low": [0, 0], "high": [1, "inf"]})", "without bounds", "finite bounds");
  refused(R"({"low": [-3.4e38], "high": [3.4e38]})", "without bounds", "finite bounds");
  refused(R"({"low": [], "high": []})", "are empty", "at least one number");
  refused("{}", "neither Discrete nor a Box", "Discrete action", "echo:Several");
}

TEST_F(ContinuousGym, AnActionThatIsNoNumberEndsTheRunWithTheReason) {
  const auto environment = echo(R"({"low": [-2], "high": [3]})");
  EXPECT_THROW(seen_after(*environment, {std::nanf("")}), Error);
}

}  // namespace
}  // namespace tandem
