#include "forecast/memory_model.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <tuple>

#include "base/errors.h"
#include "forecast/trial_sample.h"

namespace tandem {
namespace {

TEST(MemoryModel, IsNeverBelowWhatWasMeasuredAndHardlyAbove) {
  const Calibration c = SampleMachine().calibration();
  const MemoryModel model(c, "fp32", false);
  for (const Trial& trial : c.trials) {
    const int workers = static_cast<int>(trial.devices.size());
    const double forecast = model.worker(trial.shape, trial.batch, 24 / workers, workers, 100).total();
    EXPECT_GE(forecast, trial.memory_bytes);
    EXPECT_LE(forecast, 1.08 * trial.memory_bytes);
  }
}

TEST(MemoryModel, CoversEveryNumberOfWorkersThatWasTriedAndThoseBetween) {
  SampleMachine machine;
  Calibration c = machine.calibration();
  Trial four = machine.trial(192, std::vector<TrialDevice>(4), {6, 6, 6, 6});
  four.memory_bytes += 30e6;
  c.trials.push_back(four);
  const MemoryModel model(c, "fp32", false);
  for (const Trial& trial : c.trials) {
    const int workers = static_cast<int>(trial.devices.size());
    const double forecast =
        model.most(trial.shape, trial.batch, std::vector<int>(trial.devices.size(), 24 / workers), 100).total();
    EXPECT_GE(forecast, trial.memory_bytes) << workers;
    EXPECT_LE(forecast, 1.15 * trial.memory_bytes) << workers;
  }
  EXPECT_GE(model.most(four.shape, 192, {8, 8, 8}, 100).total(), four.memory_bytes + 2e5);
  EXPECT_LT(model.most(four.shape, 192, {12, 12}, 100).total(), four.memory_bytes) << "two need less";
}

TEST(MemoryModel, WhereSeveralNeedLessThanOneSuggestsTheForecastFollows) {
  SampleMachine machine;
  Calibration c = machine.calibration();
  c.trials[2].memory_bytes -= 15e6;
  const Trial& two = c.trials[2];
  const double forecast = MemoryModel(c, "fp32", false).worker(two.shape, two.batch, 12, 2, 100).total();
  EXPECT_GE(forecast, two.memory_bytes);
  EXPECT_LE(forecast, 1.06 * two.memory_bytes);
}

TEST(MemoryModel, LeavesRoomForAShardThatMovesAsFarAsItStaysClose) {
  const Calibration c = SampleMachine().calibration();
  const MemoryModel model(c, "fp32", false);
  JobShape job = c.trials[0].shape;
  job.shard_bytes = 1e6;  // a further one takes 3 MB of 300
  EXPECT_GE(model.most(job, 192, {12, 12}, 100).total(), model.worker(job, 192, 13, 2, 100).total());
  job.shard_bytes = 100e6;  // ... and here far more than 15 %
  const double dealt = model.worker(job, 192, 2, 12, 100).total();
  EXPECT_GE(model.most(job, 192, std::vector<int>(12, 2), 100).total(), 1.05 * dealt);
  EXPECT_LE(model.most(job, 192, std::vector<int>(12, 2), 100).total(), 1.07 * dealt);
  EXPECT_EQ(model.most(job, 192, {24}, 100).total(), model.worker(job, 192, 24, 1, 100).total()) << "nowhere to move";
}

TEST(MemoryModel, SharesThatEveryTrialCameToAreForecast) {
  SampleMachine machine;
  Calibration c = machine.calibration();
  c.trials[2].most_held = 15;
  JobShape job = c.trials[0].shape;
  job.shard_bytes = 50e6;
  const double uneven = MemoryModel(c, "fp32", false).most(job, 192, {12, 12}, 100).data;
  EXPECT_NEAR(uneven, 15 * 50e6, 1);
  c.trials.push_back(c.trials[2]);
  c.trials.back().most_held = 12;
  EXPECT_NEAR(MemoryModel(c, "fp32", false).most(job, 192, {12, 12}, 100).data, 12 * 50e6, 1) << "once was chance";
}

TEST(MemoryModel, ALargerReplayCountsAsDataAndInTwoSnapshots) {
  const Calibration c = SampleMachine().calibration();
  const MemoryModel model(c, "fp32", false);
  JobShape job = c.trials[0].shape;
  const double small = model.worker(job, 192, 24, 1, 100).total();
  job.shard_bytes += 10e6;
  const MemoryForecast large = model.worker(job, 192, 24, 1, 100);
  EXPECT_NEAR(large.total() - small, 3 * 240e6 * 1.03, 1e6);
  EXPECT_NEAR(large.data, 24 * 10.1e6, 1);
  EXPECT_NEAR(model.worker(job, 192, 12, 2, 100).data, 12 * 10.1e6, 1) << "half the shards, half the replay";
}

// Or the memory that a trial did without would be missing in the forecast.
TEST(MemoryModel, CountsTheSnapshotsThatATrialOfThatLengthReallyMade) {
  Calibration c = SampleMachine().calibration();
  c.trials.resize(1);
  Trial& trial = c.trials[0];
  const double replay = 24 * 20e6;  // 480 MB: its first snapshot is worth it after 96 s
  trial.shape.shard_bytes += 20e6;
  trial.steps = 5, trial.step_seconds = 1;
  trial.memory_bytes += 2 * replay;  // the replay and the one snapshot at the end
  const MemoryModel model(c, "fp32", false);
  EXPECT_GE(model.worker(trial.shape, trial.batch, 24, 1, 5).total(), trial.memory_bytes);
  EXPECT_GE(model.worker(trial.shape, trial.batch, 24, 1, 1000).total(), trial.memory_bytes + replay);
  EXPECT_LE(model.worker(trial.shape, trial.batch, 24, 1, 1000).total(), 1.08 * (trial.memory_bytes + replay));
}

TEST(MemoryModel, GrowsWithTheBatchAndNeverShrinksBelowTheSmallestTried) {
  const Calibration c = SampleMachine().calibration();
  const MemoryModel model(c, "fp32", false);
  const JobShape& job = c.trials[0].shape;
  const auto at = [&](int64_t batch) { return model.worker(job, batch, 24, 1, 100).total(); };
  EXPECT_NEAR(at(768) - at(384), 384 * 1e4 * 1.03, 1e5);
  EXPECT_EQ(at(96), at(192));
  EXPECT_NEAR(at(288), (at(192) + at(384)) / 2, 1);
}

TEST(MemoryModel, OnAGpuShardsAreSideBySideAndSnapshotsLieElsewhere) {
  Calibration c = SampleMachine().calibration();
  for (Trial& trial : c.trials) {
    for (TrialDevice& device : trial.devices) device.model = "NVIDIA H200";
    trial.memory_bytes = trial.memory_start + 24e5 + 1e6 * static_cast<double>(trial.batch);
  }
  c.trials.pop_back();
  const MemoryModel model(c, "fp32", true);
  const MemoryForecast whole = model.worker(c.trials[0].shape, 192, 24, 1, 100);
  EXPECT_EQ(whole.snapshots, 0);
  EXPECT_NEAR(whole.activations + whole.gradients, 192e6, 1e6);
  const MemoryForecast half = model.worker(c.trials[0].shape, 192, 12, 2, 100);
  EXPECT_NEAR(half.activations + half.gradients, 96e6 + 4 * 25e4, 1e5) << "half the shards, and the sum over both";
  EXPECT_THROW(MemoryModel(c, "fp32", false), ConfigError);
}

// A transformer of 124 M parameters, 8 shards, on one GPU.
struct LargeOnGpu {
  LargeOnGpu() {
    SampleMachine machine;
    machine.shards = 8;
    Trial trial = machine.trial(8, {{"NVIDIA H200"}}, {8});
    trial.shape.weights_bytes = kWeights;
    trial.shape.optimizer_bytes = 2 * kWeights;
    trial.shape.other_bytes = trial.shape.kept_bytes = 3 * kWeights;
    trial.shape.combine_floats = kWeights / 4;
    trial.shape.shard_bytes = 0;
    trial.memory_start = kContext + 4 * kWeights;  // with its first contribution, and without the copy
    trial.memory_bytes = trial.memory_start + 3 * kWeights + kActivations;
    calibration.trials = {trial};
  }
  static constexpr double kWeights = 498e6, kContext = 600e6, kActivations = 1.2e9;
  Calibration calibration;
};

TEST(MemoryModel, OnAGpuALargeCopyToRollBackToIsNotCounted) {
  LargeOnGpu large;
  Trial& trial = large.calibration.trials[0];
  const double forecast = MemoryModel(large.calibration, "fp32", true).worker(trial.shape, 8, 8, 1, 100).total();
  EXPECT_GE(forecast, trial.memory_bytes);
  EXPECT_LE(forecast, 1.05 * trial.memory_bytes);
  // Twice the weights, of which no more than the copy stays off the GPU.
  JobShape twice = trial.shape;
  twice.weights_bytes *= 2;
  twice.optimizer_bytes *= 2;
  twice.other_bytes = twice.kept_bytes = 2 * trial.shape.kept_bytes;
  const double more = MemoryModel(large.calibration, "fp32", true).worker(twice, 8, 8, 1, 100).total() - forecast;
  EXPECT_NEAR(more, 1.03 * 3 * LargeOnGpu::kWeights, 1e6);
  // A small one lies beside the state.
  JobShape small = trial.shape, without = small;
  small.other_bytes = small.kept_bytes = 200e6;
  without.other_bytes = without.kept_bytes = 0;
  const MemoryModel model(large.calibration, "fp32", true);
  EXPECT_NEAR(model.worker(small, 8, 8, 1, 100).total() - model.worker(without, 8, 8, 1, 100).total(), 1.03 * 200e6, 1);
}

TEST(MemoryModel, ShardsThatRunOneAfterTheOtherOnAGpuNeedNoLessWhenAWorkerHasFewer) {
  const LargeOnGpu large;
  const Trial& trial = large.calibration.trials[0];
  const MemoryModel model(large.calibration, "fp32", true);
  const MemoryForecast all = model.worker(trial.shape, 8, 8, 1, 100), one = model.worker(trial.shape, 8, 1, 8, 100);
  EXPECT_EQ(one.activations, all.activations);
  EXPECT_EQ(one.gradients, all.gradients + LargeOnGpu::kWeights) << "and the sum over all workers";
}

// The same, whose layers run several shards in one pass. Beside the activations there are three vectors that wait while
// shards are added up, one for each further subtree of a worker, and one for the sum over all workers.
struct PassesOnGpu : LargeOnGpu {
  explicit PassesOnGpu(std::vector<int64_t> batches, int64_t in_pass = 8) {
    const Trial first = calibration.trials[0];
    calibration.trials.clear();
    for (const int64_t batch : batches) {
      Trial trial = first;
      trial.batch = batch;
      trial.in_pass = in_pass;
      trial.memory_bytes = truth(batch, in_pass, 1, 1);
      calibration.trials.push_back(trial);
    }
  }
  // Of a worker with `shards` of 8 in a pass.
  static double truth(int64_t batch, int64_t shards, int subtrees, int workers) {
    const double rows = static_cast<double>(batch * shards) / 8;
    return kContext + (4 + 3 + subtrees - 1 + (workers > 1)) * kWeights + kActivations * rows / 8;
  }
  const JobShape& job() const { return calibration.trials[0].shape; }
  MemoryModel model() const { return MemoryModel(calibration, "fp32", true); }
};

TEST(MemoryModel, OnAGpuAWorkerWithFewerShardsIsForecastWithItsSmallerPass) {
  for (const std::vector<int64_t>& batches : {std::vector<int64_t>{16}, {16, 32}, {8, 16, 64}}) {
    const PassesOnGpu gpu(batches);
    const MemoryModel model = gpu.model();
    for (const int64_t batch : {16, 32}) {
      if (batch > batches.back()) continue;  // from one trial alone all of it grows with the batch
      for (const auto& [workers, held, subtrees] : {std::tuple{1, 8, 1}, {2, 4, 1}, {3, 3, 2}, {4, 2, 1}, {8, 1, 1}}) {
        const double truth = PassesOnGpu::truth(batch, held, subtrees, workers);
        const double forecast =
            model.most(gpu.job(), batch, std::vector<int>(static_cast<size_t>(workers), held), 100).total();
        EXPECT_GE(forecast, truth) << workers << " workers, batch " << batch << ", tried " << batches.size();
        EXPECT_LE(forecast, 1.05 * truth) << workers << " workers, batch " << batch << ", tried " << batches.size();
      }
    }
  }
}

// A data set that lies on the GPU, the libraries' work memory: a smaller pass takes none of it away.
TEST(MemoryModel, OnAGpuWhatTheBatchDoesNotChangeStaysInASmallerPass) {
  constexpr double kResident = 5e9;
  PassesOnGpu gpu({16, 32});
  for (Trial& trial : gpu.calibration.trials) trial.memory_bytes += kResident;
  const double truth = PassesOnGpu::truth(32, 1, 1, 8) + kResident;
  const double forecast = gpu.model().worker(gpu.job(), 32, 1, 8, 100).total();
  EXPECT_GE(forecast, truth);
  EXPECT_LE(forecast, 1.05 * truth);
}

TEST(MemoryModel, OnAGpuWhereMemoryHeldSomeShardsInAPassAWorkerWithAsManyIsForecastWithAll) {
  const auto activations = [&](int64_t in_pass, int held) {
    const PassesOnGpu gpu({16, 32}, in_pass);
    return gpu.model().worker(gpu.job(), 32, held, 8 / held, 100).activations;
  };
  const double shard = PassesOnGpu::kActivations * 32 / 8 / 8;
  EXPECT_NEAR(activations(4, 4), activations(4, 8), 1);
  EXPECT_NEAR(activations(4, 8) - activations(4, 2), 2 * shard, 1);
  EXPECT_NEAR(activations(2, 4), activations(2, 8), 1) << "no pass has more than before";
  EXPECT_NEAR(activations(2, 8) - activations(2, 1), shard, 1);
}

TEST(MemoryModel, ShardsInAPassAreKeptWithATrialAndOlderFilesAreMeasuredAgain) {
  const PassesOnGpu gpu({16});
  nlohmann::json json = to_json(gpu.calibration);
  ASSERT_TRUE(calibration_from(json));
  EXPECT_EQ(calibration_from(json)->trials[0].in_pass, 8);
  json["version"] = 3;
  EXPECT_FALSE(calibration_from(json));
}

}  // namespace
}  // namespace tandem
