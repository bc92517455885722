#include "engine/kept_state.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/late_gpu.h"
#include "engine/update.h"
#include "kernels/cpu/state_hash.h"
#include "nn/channels_last.h"

namespace tandem {
namespace {

// A convolution that is channels last, so that its weight is no part of a stretch, and tensors with padding between.
struct SmallNetImpl : torch::nn::Module {
  SmallNetImpl()
      : conv(register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 5, 3)))),
        first(register_module("first", torch::nn::Linear(5, 7))),
        second(register_module("second", torch::nn::Linear(7, 3))) {
    use_channels_last(*this);
  }
  torch::nn::Conv2d conv;
  torch::nn::Linear first, second;
};

constexpr int64_t kAllOnDevice = std::numeric_limits<int64_t>::max();

struct KeptSettings : RecipeSettings {
  KeptSettings() {
    optimizer.kind = "adamw";
    optimizer.learning_rate = 0.01;
    nan.patience = 1;
    nan.rollback_every = 3;
    nan.max_rollbacks = 9;
  }
};

struct Trainer {
  explicit Trainer(const RecipeSettings& settings, int64_t most_on_device) : state(1, 5) {
    state.add_model(std::make_shared<SmallNetImpl>());
    counter = state.add_replicated("counter", at::arange(5, at::kLong));
    state.seal(0, optimizer_states(settings.optimizer));
    update.emplace(settings, state, 8, most_on_device);
  }
  UpdateResult step(int64_t number, bool bad = false) {
    update->begin_step(number);
    std::vector<float> total(static_cast<size_t>(state.contribution_floats()), 0.0f);
    for (const ParameterEntry& entry : state.parameter_entries())
      for (int64_t i = 0; i < entry.count; ++i)
        total[static_cast<size_t>(entry.offset + i)] = 0.01f * static_cast<float>((i + 7 * number) % 11 - 5);
    if (bad) total[1] = std::numeric_limits<float>::quiet_NaN();
    counter.add_(number);
    return update->apply(total, 0);
  }
  // Everything that a snapshot takes, in the order of its files.
  std::vector<NamedTensor> all() {
    std::vector<NamedTensor> tensors = state.model_tensors();
    for (NamedTensor& t : state.replicated_state()) tensors.push_back(t);
    for (NamedTensor& t : update->kept_state()) tensors.push_back(t);
    return tensors;
  }
  JobState state;
  at::Tensor counter;
  std::optional<Update> update;
};

void expect_same(Trainer& a, Trainer& b, const std::string& when) {
  const std::vector<NamedTensor> one = a.all(), other = b.all();
  ASSERT_EQ(one.size(), other.size());
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i].name, other[i].name);
    const at::Tensor x = a.state.to_file_order(one[i]), y = b.state.to_file_order(other[i]);
    ASSERT_EQ(x.nbytes(), y.nbytes());
    EXPECT_EQ(std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()), 0) << one[i].name << " " << when;
  }
  EXPECT_EQ(a.update->save(), b.update->save());
}

TEST(KeptState, InHostMemoryItHasTheBitsThatItHasBesideTheState) {
  const KeptSettings settings;
  Trainer beside(settings, kAllOnDevice), host(settings, /*most_on_device=*/0);
  for (int64_t number = 0; number < 12; ++number) {
    const bool bad = number == 5 || number == 9;  // step 5 rolls back two steps, step 9 the state kept at its beginning
    EXPECT_EQ(beside.step(number, bad).rolled_back, bad);
    EXPECT_EQ(host.step(number, bad).rolled_back, bad);
    expect_same(beside, host, "after step " + std::to_string(number));
  }
}

TEST(KeptState, ASnapshotFillsItWhereverItLies) {
  const KeptSettings settings;
  for (const auto& [from, to] : {std::pair{kAllOnDevice, int64_t{0}}, std::pair{int64_t{0}, kAllOnDevice}}) {
    Trainer first(settings, from), second(settings, to);
    for (int64_t number = 0; number < 5; ++number) first.step(number);
    second.update->load(first.update->save());
    const std::vector<NamedTensor> there = second.all(), here = first.all();
    for (size_t i = 0; i < there.size(); ++i)
      second.state.from_file_order(there[i], first.state.to_file_order(here[i]));
    expect_same(first, second, "after a restore");
    EXPECT_TRUE(first.step(5, /*bad=*/true).rolled_back);
    EXPECT_TRUE(second.step(5, /*bad=*/true).rolled_back);
    expect_same(first, second, "after a roll-back to it");
  }
}

TEST(KeptState, ItsHashesAreThoseOfTheCopiesAndAreForgottenOnceTheseAreWrittenTo) {
  const KeptSettings settings;
  Trainer beside(settings, kAllOnDevice), host(settings, 0);
  for (int64_t number = 0; number < 5; ++number) host.step(number);
  EXPECT_TRUE(beside.update->kept_hashes().empty()) << "quickly hashed where they are";
  const std::vector<NamedTensor> kept = host.update->kept_state();
  ASSERT_EQ(host.update->kept_hashes().size(), kept.size());
  for (size_t i = 0; i < kept.size(); ++i)
    EXPECT_EQ(host.update->kept_hashes()[i],
              state_hash(kept[i].tensor.data_ptr(), static_cast<int64_t>(kept[i].tensor.nbytes())))
        << kept[i].name;
  host.update->load(host.update->save());
  EXPECT_TRUE(host.update->kept_hashes().empty());
}

TEST(KeptState, SaysOnceThatTheSystemRefusedToPinItsMemory) {
  struct NothingPinned : LateDevice {
    using LateDevice::LateDevice;
    bool pin(void*, size_t) override { return false; }
  };
  const std::vector<NamedTensor> now = {{"w", at::ones({1000})}};
  LateStreams streams;
  NothingPinned refusing(streams);
  KeptState pinned(0), beside(4096), not_pinned(0);
  pinned.keep(now);
  use_device(refusing);
  beside.keep(now);
  not_pinned.keep(now);
  use_device(cpu_device());
  EXPECT_EQ(pinned.take_note(), "");
  EXPECT_EQ(beside.take_note(), "");
  EXPECT_NE(not_pinned.take_note().find("refused to pin"), std::string::npos);
  EXPECT_EQ(not_pinned.take_note(), "");
}

TEST(KeptState, GoesToTheHostWhenItIsLargerThanTheLimit) {
  const std::vector<NamedTensor> now = {{"w", at::ones({1000})}, {"v", at::ones({24})}};
  KeptState fits(4096), does_not(4095);
  fits.keep(now);
  does_not.keep(now);
  EXPECT_FALSE(fits.on_host());
  EXPECT_TRUE(does_not.on_host());
}

}  // namespace
}  // namespace tandem
