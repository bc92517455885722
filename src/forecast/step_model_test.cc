#include "forecast/step_model.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "forecast/rows.h"
#include "forecast/trial_sample.h"

namespace tandem {
namespace {

TEST(StepModel, SaysWhatWasMeasuredWhereItWasMeasured) {
  const Calibration c = SampleMachine().calibration();
  const StepModel model(c, "fp32");
  EXPECT_NEAR(model.step(192, {{"cpu"}}).seconds, c.trials[0].step_seconds, 1e-12);
  EXPECT_NEAR(model.step(384, {{"cpu"}}).seconds, c.trials[1].step_seconds, 1e-12);
  EXPECT_NEAR(model.step(192, {{"cpu"}, {"cpu"}}).seconds, c.trials[2].step_seconds, 1e-12);
  EXPECT_NEAR(model.combine2(), 2e-4, 1e-12);
}

TEST(StepModel, MoreWorkersDivideTheShardsAndNothingElse) {
  SampleMachine machine;
  machine.cores = 8;
  const StepModel model(machine.calibration(), "fp32");
  const double one = 1e-4 + 2e-5 * 8;
  for (const int workers : {3, 4, 8}) {
    const StepForecast step = model.step(192, std::vector<ForecastDevice>(static_cast<size_t>(workers)));
    EXPECT_NEAR(step.compute, one * 24 / workers, 1e-12);
    EXPECT_NEAR(step.fixed, 3e-4, 1e-12);
    EXPECT_GT(step.combine, 2e-4);
    EXPECT_LT(step.combine, 6e-4);
  }
  EXPECT_NEAR(model.step(192, std::vector<ForecastDevice>(5)).compute, one * 5, 1e-12) << "whole shards: 5 5 5 5 4";
}

TEST(StepModel, BatchesBetweenAndBeyondThoseTriedLieOnTheLine) {
  const StepModel model(SampleMachine().calibration(), "fp32");
  EXPECT_NEAR(model.step(288, {{"cpu"}}).compute, 24e-4 + 2e-5 * 288, 1e-9);
  EXPECT_NEAR(model.step(768, {{"cpu"}}).compute, 24e-4 + 2e-5 * 768, 1e-9);
  EXPECT_NEAR(model.step(96, {{"cpu"}}).compute, 24e-4 + 2e-5 * 96, 1e-9);
}

TEST(StepModel, SlotsOnOneCoreTakeTurnsAtWhatIsNotDivided) {
  const StepModel model(SampleMachine().calibration(), "fp32");
  const std::vector<ForecastDevice> four = {{"cpu", .45, 0}, {"cpu", .45, 1}, {"cpu", .45, 0}, {"cpu", .45, 1}};
  const StepForecast step = model.step(192, four);
  EXPECT_NEAR(step.compute, (1e-4 + 2e-5 * 8) * 6 / .45, 1e-12);
  EXPECT_NEAR(step.fixed, 2 * 3e-4, 1e-12);
}

TEST(StepModel, WorkersBesideEachOtherCostWhatTwoWereSeenToCost) {
  SampleMachine machine;
  Calibration c = machine.calibration();
  c.trials[2].compute_seconds *= 1.1;
  c.trials[2].step_seconds += .1 / 1.1 * c.trials[2].compute_seconds;
  const StepModel model(c, "fp32");
  EXPECT_NEAR(model.crowd({{"cpu"}, {"cpu"}}), 1.1, 1e-9);
  EXPECT_NEAR(model.crowd({{"cpu"}}), 1, 1e-12);
  EXPECT_NEAR(model.step(192, {{"cpu"}, {"cpu"}}).seconds, c.trials[2].step_seconds, 1e-9);
}

TEST(StepModel, OnAGpuWhatDoesNotGrowWithTheBatchIsNotDivided) {
  Calibration c = SampleMachine().calibration();
  c.trials.pop_back();
  for (Trial& trial : c.trials) {
    trial.devices = {{"NVIDIA H200"}};
    trial.step_seconds = 4e-4 + 1e-6 * static_cast<double>(trial.batch);
    trial.compute_seconds = 0;
  }
  const StepModel model(c, "fp32");
  const StepForecast two = model.step(192, {{"NVIDIA H200"}, {"NVIDIA H200"}});
  EXPECT_NEAR(two.compute, 96e-6, 1e-9);
  EXPECT_NEAR(two.fixed, 4e-4, 1e-9);
  EXPECT_FALSE(model.measured_combine());
  EXPECT_GT(two.error, .1);
}

TEST(StepModel, WithoutAMeasurementOfOneDeviceThereIsNoForecast) {
  Calibration c = SampleMachine().calibration();
  EXPECT_THROW(StepModel(c, "bf16"), ConfigError);
  c.trials.erase(c.trials.begin(), c.trials.begin() + 2);
  EXPECT_THROW(StepModel(c, "fp32"), ConfigError);
}

TEST(ChooseDevices, LeavesASlowOneOutWhereItHurts) {
  SampleMachine machine;
  machine.cores = 8;
  machine.shards = 4;
  const StepModel model(machine.calibration(), "fp32");
  const std::vector<ForecastDevice> devices = {{"cpu", .1}, {"cpu", 1}, {"cpu", 1}};
  const auto best = choose_devices(model, 192, devices, 3);
  ASSERT_EQ(best.size(), 3u);
  EXPECT_EQ(best[0].used, std::vector<int>{1});
  EXPECT_EQ(best[1].used, (std::vector<int>{1, 2}));
  EXPECT_GT(best[2].step.seconds, best[1].step.seconds);
}

TEST(PlanRows, NameTheBestAndItsMemoryEnergyAndMoney) {
  const Calibration c = SampleMachine().calibration();
  const StepModel steps(c, "fp32");
  const MemoryModel memory(c, "fp32", false);
  PlanQuestion question;
  question.job = c.trials[0].shape;
  question.job.total_steps = 100000;
  question.devices = {{{"cpu", 1}, "cpu:0"}, {{"cpu", 1}, "cpu:1"}, {{"cpu", .05}, "cpu:2"}};
  question.batches = {192, 384};
  question.cores = 2;
  question.checkpoints.automatic = false;
  question.prices.kwh = .5;
  const auto rows = plan_rows(question, steps, &memory, "fp32");
  ASSERT_EQ(rows.size(), 6u);
  EXPECT_EQ(rows[1].names, (std::vector<std::string>{"cpu:0", "cpu:1"}));
  EXPECT_NEAR(rows[0].seconds, 1 + .2 + 1e5 * c.trials[0].step_seconds, 1e-6) << "the trials took no snapshot";
  EXPECT_NEAR(rows[0].kwh, rows[0].watts * rows[0].seconds / 3.6e6, 1e-9);
  EXPECT_NEAR(rows[0].cost, .5 * rows[0].kwh, 1e-9);
  EXPECT_EQ(rows[1].guide->speedup, 1.8);
  question.recipe = "options";
  const auto of_options = plan_rows(question, steps, &memory, "fp32");
  EXPECT_EQ(of_options[1].guide->speedup, 1.9);
  EXPECT_FALSE(of_options[1].guide->minutes) << "these are not the guide's H100s";
  EXPECT_GE(rows[0].memory.total(), c.trials[0].memory_bytes);
  const PlanRow* best = best_row(rows, 192, "fp32");
  ASSERT_TRUE(best);
  EXPECT_EQ(best->used.size(), 2u) << "the slow third one is left out";
}

TEST(PlanRows, OneShardADeviceGivesMoreSamplesAStep) {
  Calibration c = SampleMachine().calibration();
  c.trials[2] = SampleMachine().trial(192, {{"cpu"}, {"cpu"}}, {24, 24});  // each a whole batch
  for (Trial& trial : c.trials) trial.per_device = true, trial.shards = static_cast<int64_t>(trial.devices.size());
  const StepModel steps(c, "fp32");
  EXPECT_NEAR(steps.samples(192, 2), 2 * steps.samples(192, 1), 1e-9);
  EXPECT_NEAR(steps.step(192, {{"cpu"}, {"cpu"}}).compute, steps.step(192, {{"cpu"}}).compute, 2e-3);
  PlanQuestion question;
  question.devices = {{{"cpu", 1}, "cpu:0"}, {{"cpu", 1}, "cpu:1"}};
  question.batches = {192};
  question.cores = 2;
  const auto rows = plan_rows(question, steps, nullptr, "fp32");
  ASSERT_TRUE(best_row(rows, 192, "fp32"));
  EXPECT_EQ(best_row(rows, 192, "fp32")->used.size(), 2u) << "its step is no shorter, but does twice as much";
}

TEST(PlanRows, CountTheEnergyWithWhatAGpuWasSeenToDraw) {
  Calibration c = SampleMachine().calibration();
  c.trials.resize(1);
  c.trials[0].devices = {{"H200"}};
  PlanQuestion question;
  question.devices = {{{"H200", 1}, "cuda:0", 141e9, 700}};
  question.batches = {192};
  const StepModel steps(c, "fp32");
  const double guessed = plan_rows(question, steps, nullptr, "fp32")[0].watts;
  question.measured_w = 300;
  EXPECT_NEAR(guessed - plan_rows(question, steps, nullptr, "fp32")[0].watts, .62 * 700 - 300, 1e-6);
}

TEST(PlanRows, TwoWorkersOnOneGpuShareItsMemoryAndItsPower) {
  Calibration c = SampleMachine().calibration();
  c.trials.resize(1);
  c.trials[0].devices = {{"H200"}};
  PlanQuestion question;
  question.devices = {{{"H200", 1}, "cuda:0", 100e9, 700, "uuid"}, {{"H200", 1}, "cuda:0", 100e9, 700, "uuid"}};
  question.batches = {192};
  const auto rows = plan_rows(question, StepModel(c, "fp32"), nullptr, "fp32");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_NEAR(rows[0].memory_limit, 90e9, 1);
  EXPECT_NEAR(rows[1].memory_limit, 45e9, 1);
  EXPECT_EQ(rows[0].watts, rows[1].watts);
  question.devices[1].gpu = "another";
  EXPECT_GT(plan_rows(question, StepModel(c, "fp32"), nullptr, "fp32")[1].watts, 1.5 * rows[0].watts);
}

TEST(PlanRows, WorkersOnTheCpuShareTheHostsMemory) {
  const Calibration c = SampleMachine().calibration();
  const MemoryModel memory(c, "fp32", false);
  PlanQuestion question;
  question.job = c.trials[0].shape;
  question.devices = {{{"cpu", 1}, "cpu:0"}, {{"cpu", 1}, "cpu:1"}};
  question.batches = {192};
  question.cores = 2;
  question.host_bytes = 1.5 * c.trials[0].memory_bytes;
  const auto rows = plan_rows(question, StepModel(c, "fp32"), &memory, "fp32");
  EXPECT_TRUE(rows[0].fits());
  EXPECT_FALSE(rows[1].fits()) << "two of them need more than there is";
  EXPECT_EQ(best_row(rows, 192, "fp32")->used.size(), 1u);
}

TEST(PlanRows, CountsAndBatchesAreReadOrRefused) {
  EXPECT_EQ(parse_counts("1..3,8", 8), (std::vector<int>{1, 2, 3, 8}));
  EXPECT_EQ(parse_counts("2", 8), std::vector<int>{2});
  for (const char* bad : {"", "0", "3..1", "x", "1..", "9", "1,,2"})
    EXPECT_THROW(parse_counts(bad, 8), ConfigError) << bad;
  EXPECT_EQ(parse_batches("128,256,128"), (std::vector<int64_t>{128, 256}));
  for (const char* bad : {"", "-1", "1e9", "12x"}) EXPECT_THROW(parse_batches(bad), ConfigError) << bad;
}

TEST(Calibration, ReadsBackWhatItWroteAndNothingElse) {
  const Calibration c = SampleMachine().calibration();
  const auto again = calibration_from(to_json(c));
  ASSERT_TRUE(again);
  EXPECT_EQ(to_json(*again), to_json(c));
  auto damaged = to_json(c);
  damaged["trials"][0].erase("batch");
  EXPECT_FALSE(calibration_from(damaged));
  damaged = to_json(c);
  damaged["version"] = 99;
  EXPECT_FALSE(calibration_from(damaged));
  for (const auto& [key, value] : std::vector<std::pair<const char*, nlohmann::json>>{
           {"devices", nlohmann::json::array()}, {"step_seconds", -1}, {"shards", 0}, {"memory_bytes", nullptr}}) {
    damaged = to_json(c);
    damaged["trials"][1][key] = value;
    EXPECT_FALSE(calibration_from(damaged)) << key;
  }
}

}  // namespace
}  // namespace tandem
