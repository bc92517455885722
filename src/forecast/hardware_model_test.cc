#include "forecast/hardware_model.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "forecast/memory_model.h"
#include "forecast/step_model.h"
#include "forecast/trial_sample.h"

namespace tandem {
namespace {

Calibration on_h200() {
  Calibration c = SampleMachine().calibration();
  c.trials.pop_back();
  for (Trial& trial : c.trials) {
    trial.devices = {{"NVIDIA H200"}};
    trial.step_seconds = 4e-4 + 2e-6 * static_cast<double>(trial.batch);
    trial.compute_seconds = 0;
    trial.shape.weights_bytes = 400e6;  // large enough that arithmetic counts
  }
  return c;
}

TEST(HardwareModel, LaunchesStayArithmeticAndMemoryFollowTheBook) {
  const StepShares shares{.arithmetic = 1, .memory = 1, .latency = 1};
  const GpuModel &h200 = gpu_or_throw("H200"), &h100 = gpu_or_throw("H100"), &small = gpu_or_throw("3060ti");
  const StepShares same = moved(shares, h200, "fp32", h200, "fp32");
  EXPECT_EQ(same.seconds(), 3);
  EXPECT_NEAR(moved(shares, h200, "fp32", h100, "fp32").memory, 4800.0 / 3350, 1e-9);
  const StepShares slower = moved(shares, h200, "fp32", small, "fp32");
  EXPECT_NEAR(slower.arithmetic, 66.9 / 16.2, 1e-9);
  EXPECT_EQ(slower.latency, 1);
  EXPECT_LT(moved(shares, small, "fp32", h200, "bf16").arithmetic,
            moved(shares, small, "fp32", h200, "fp32").arithmetic);
}

TEST(HardwareModel, AFasterPrecisionIsNeverForecastSlowerThanFp32) {
  Calibration cpu = SampleMachine().calibration();
  cpu.recipe = "tiny";
  JobShape job = cpu.trials[0].shape;
  job.weights_bytes = 400e6;
  double before = 1e9;
  for (const char* precision : {"fp32", "tf32", "bf16"}) {
    const Scaled scaled = scale_to(parse_hardware("MI325X"), cpu, job, {192}, precision);
    EXPECT_LT(scaled.shares.arithmetic, before) << precision;
    before = scaled.shares.arithmetic;
  }
}

TEST(HardwareModel, WhatIsAssumedBetweenGpusIsTold) {
  const Calibration cpu = SampleMachine().calibration();
  const auto between = [&](const char* hardware) {
    return scale_to(parse_hardware(hardware), cpu, cpu.trials[0].shape, {256}, "fp32").between;
  };
  EXPECT_EQ(between("H100"), "");
  EXPECT_EQ(between("8xH100"), "H100 SXM: NVLink, 315 GB/s each way, peer access");
  EXPECT_EQ(between("3060ti+2x3070"),
            "RTX 3060 Ti: PCIe, 14 GB/s each way, through host memory: without peer access; "
            "RTX 3070: PCIe, 14 GB/s each way, through host memory: without peer access");
}

TEST(HardwareModel, WebAgentInBf16IsNotForecastSlowerThanInFp32) {
  Calibration cpu = SampleMachine().calibration();
  cpu.recipe = "web-agent";
  const auto seconds = [&](const char* precision) {
    return scale_to(parse_hardware("H200"), cpu, cpu.trials[0].shape, {256}, precision).shares.seconds();
  };
  EXPECT_LE(seconds("bf16"), seconds("fp32"));
  EXPECT_GT(seconds("bf16"), seconds("fp32") / 2) << "most of it are launches";
}

TEST(HardwareModel, TheGpuThatWasMeasuredIsForecastAsMeasured) {
  const Calibration here = on_h200();
  const Scaled scaled = scale_to(parse_hardware("H200"), here, here.trials[0].shape, {192, 384}, "fp32");
  EXPECT_NEAR(StepModel(scaled.calibration, "fp32").step(192, {{"H200"}}).seconds, here.trials[0].step_seconds, 1e-9);
  EXPECT_LE(scaled.error, .35);
  EXPECT_NEAR(scaled.shares.arithmetic + scaled.shares.memory, .9 * here.trials[0].step_seconds, 1e-9)
      << "by the book it would take longer than it did: a tenth is left for launches";
}

TEST(HardwareModel, ARunOnAGpuThatIsNotHereLoadsCudasLibrariesToo) {
  Calibration cpu = SampleMachine().calibration();
  for (Trial& trial : cpu.trials) trial.start_seconds = .4;
  const JobShape& job = cpu.trials[0].shape;
  EXPECT_DOUBLE_EQ(scale_to(parse_hardware("H200"), cpu, job, {192}, "fp32").calibration.trials[0].start_seconds,
                   kGpuStartSeconds);
  for (Trial& trial : cpu.trials) trial.start_seconds = 9;
  EXPECT_DOUBLE_EQ(scale_to(parse_hardware("H200"), cpu, job, {192}, "fp32").calibration.trials[0].start_seconds, 9);
}

TEST(HardwareModel, SumsGoOverNvlinkWhereThereIsOneElseOverPcie) {
  const GpuModel &h100 = gpu_or_throw("H100"), &small = gpu_or_throw("3070");
  ASSERT_TRUE(h100.nvlink_gb_per_s);
  EXPECT_DOUBLE_EQ(sum_float_seconds(h100), 1.25 * 4 / (.7 * *h100.nvlink_gb_per_s / 2 * 1e9));
  EXPECT_DOUBLE_EQ(sum_float_seconds(small), 1.25 * 4 / (.45 * small.pcie_gb_per_s * 1e9));
}

// Pinned host memory where GPUs have no peer access, as a run would use it.
TEST(HardwareModel, SumsByKernelsTakeWhatTheProbeTookAndSaySo) {
  const GpuModel &h100 = gpu_or_throw("H100"), &small = gpu_or_throw("3070");
  EXPECT_DOUBLE_EQ(sum_latency_seconds(h100), 3e-4);
  const auto with = [](const char* plane, const GpuModel& gpu) {
    setenv("TANDEM_PLANE", plane, 1);
    const std::pair<double, std::string> found{sum_latency_seconds(gpu), sums_go_over(gpu)};
    unsetenv("TANDEM_PLANE");
    return found;
  };
  EXPECT_DOUBLE_EQ(with("peer", h100).first, 7e-6);
  EXPECT_DOUBLE_EQ(with("auto-with-peers", h100).first, 7e-6);
  EXPECT_DOUBLE_EQ(with("pinned", h100).first, 85e-6);
  EXPECT_DOUBLE_EQ(with("peer", small).first, 85e-6);
  EXPECT_TRUE(with("peer", small).second.ends_with("by kernels (85 us from a probe on one H200, not from a run)"));
  EXPECT_DOUBLE_EQ(with("nccl", h100).first, 3e-4);
}

TEST(HardwareModel, ASlowerGpuIsSlowerAndEightAreFasterThanOne) {
  const Calibration here = on_h200();
  const JobShape& job = here.trials[0].shape;
  const StepModel slow(scale_to(parse_hardware("2x3060ti"), here, job, {192, 384}, "fp32").calibration, "fp32");
  const StepModel eight(scale_to(parse_hardware("8xH100"), here, job, {192, 384}, "fp32").calibration, "fp32");
  EXPECT_GT(slow.step(192, {{"RTX 3060 Ti"}}).seconds, here.trials[0].step_seconds);
  const std::vector<ForecastDevice> gpus(8, {"H100 SXM"});
  EXPECT_LT(eight.step(192, gpus).compute, eight.step(192, {{"H100 SXM"}}).compute / 7);
}

TEST(HardwareModel, WithoutAGpuHereItSaysHowWideItsErrorIs) {
  const Calibration cpu = SampleMachine().calibration();
  const Scaled known = scale_to(parse_hardware("8xH100"), cpu, cpu.trials[0].shape, {192, 384}, "fp32");
  EXPECT_GE(known.error, .5);
  EXPECT_NE(known.from.find("H200"), std::string::npos);
  Calibration other = cpu;
  other.recipe = "mine";
  EXPECT_GT(scale_to(parse_hardware("8xMI325X"), other, cpu.trials[0].shape, {192, 384}, "fp32").error, known.error);
}

// A GPU runs all shards in the pass that a CPU was seen to run some of.
TEST(HardwareModel, APassThatWasMeasuredOnTheCpuIsNotCountedForEachShardAgain) {
  Calibration cpu = SampleMachine().calibration();
  for (Trial& trial : cpu.trials) trial.memory_bytes += 1e6 * static_cast<double>(trial.batch);
  const JobShape& job = cpu.trials[0].shape;
  const auto on_gpu = [&](int64_t in_pass, int held, int workers) {
    for (Trial& trial : cpu.trials) trial.in_pass = in_pass;
    const Calibration scaled = scale_to(parse_hardware("2xH200"), cpu, job, {192, 384}, "fp32").calibration;
    const MemoryForecast forecast = MemoryModel(scaled, "fp32", true).worker(job, 192, held, workers, 1e9);
    return forecast.activations + forecast.gradients;
  };
  const double alone = MemoryModel(cpu, "fp32", false).worker(job, 192, 24, 1, 1e9).activations +
                       MemoryModel(cpu, "fp32", false).worker(job, 192, 24, 1, 1e9).gradients;
  EXPECT_NEAR(on_gpu(24, 24, 1), alone, 1);
  EXPECT_NEAR(on_gpu(12, 24, 1), 2 * alone, 1);
  EXPECT_NEAR(on_gpu(1, 24, 1), 24 * alone, 1) << "shards side by side";
  EXPECT_LT(on_gpu(24, 12, 2), .6 * alone) << "half the shards, half the pass";
}

TEST(HardwareModel, AgentsSideBySideHoldAllTheirBuffersAndTakeTheirTimesAsTold) {
  Calibration cpu = SampleMachine().calibration();
  JobShape job = cpu.trials[0].shape;
  job.shard_bytes = 537e6 / 24;
  const Calibration one = scale_to(parse_hardware("H200"), cpu, job, {192, 384}, "fp32").calibration;
  const JobShape all = sum_of(std::vector<JobShape>(6, job));
  const Calibration six = side_by_side(one, all, 6, 2);
  const auto step = [](const Calibration& c) { return StepModel(c, "fp32").step(192, {{"H200"}}).seconds; };
  EXPECT_NEAR(step(six), 2 * step(one), 1e-9);
  const MemoryForecast alone = MemoryModel(one, "fp32", true).worker(job, 192, 24, 1, 1e9);
  const MemoryForecast held = MemoryModel(six, "fp32", true).worker(all, 192, 24, 1, 1e9);
  EXPECT_NEAR(held.data, 6 * 537e6, 1);
  EXPECT_NEAR(held.activations + held.gradients, 6 * (alone.activations + alone.gradients), 1);
  EXPECT_GT(held.total(), 6 * 537e6 + 600e6) << "and the context once";
  EXPECT_DOUBLE_EQ(six.trials[0].samples, 6 * one.trials[0].samples);
  Calibration paused = one;
  paused.trials[0].snapshot_seconds = .25;
  EXPECT_DOUBLE_EQ(side_by_side(paused, all, 6, 2).trials[0].snapshot_seconds, 1.5) << "each has its own state";
  EXPECT_LT(held.total(), 6 * alone.total());
}

}  // namespace
}  // namespace tandem
