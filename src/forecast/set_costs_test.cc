#include "forecast/set_costs.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

JobShape web_agent() {
  JobShape job;
  job.weights_bytes = 4 * 266e3;
  job.optimizer_bytes = 8 * 266e3;
  job.other_bytes = 4 * 266e3;
  job.combine_floats = 266e3;
  return job;
}

RunCost on(const char* gpu) {
  return cost_of(shares_by_book(gpu_or_throw(gpu), "web-agent", web_agent(), 256, 256, "fp32"));
}

TEST(SetCosts, OnAnH200AnAgentMoreAddsTheSeventhThatWasMeasured) {
  const RunCost h200 = on("H200");
  EXPECT_NEAR(h200.alone(), 150e-6, 1e-9) << "the step that was measured there";
  EXPECT_NEAR(h200.more / h200.alone(), .15, .01);
}

TEST(SetCosts, ASmallGpuWaitsAsLongForLaunchesAndLongerForArithmetic) {
  const RunCost small = on("3060ti"), large = on("H200");
  EXPECT_DOUBLE_EQ(small.fixed, large.fixed);
  EXPECT_GT(small.divided, 3 * large.divided);
  EXPECT_GT(small.more / small.alone(), 2 * large.more / large.alone()) << "so it gains less by shared launches";
  EXPECT_GT(on("3060ti").alone(), on("3070").alone());
}

TEST(SetCosts, AMeasuredStepKeepsItsLengthAndAMeasuredBatchWhatEachAgentAdds) {
  const StepShares book = shares_by_book(gpu_or_throw("3070"), "web-agent", web_agent(), 256, 256, "fp32");
  for (const double seconds : {50e-6, 300e-6, 5e-3}) {
    const RunCost cost = cost_at(seconds, book);
    EXPECT_DOUBLE_EQ(cost.alone(), seconds);
    EXPECT_GT(cost.fixed, 0);
  }
  // What the others of a measured run add, by their own arithmetic: together they make the run as long as it was.
  const RunCost slow{100e-6, 300e-6, 0}, fast{100e-6, 100e-6, 0};
  const double share = share_of_one_more({fast, slow, fast}, 520e-6);
  EXPECT_DOUBLE_EQ(slow.alone() + 2 * share * fast.divided, 520e-6);
  EXPECT_DOUBLE_EQ(share_of_one_more({slow}, 520e-6), kOfOneMore) << "one tells nothing of two";
  EXPECT_DOUBLE_EQ(share_of_one_more({slow, slow}, 0), kOfOneMore) << "it was not measured";
  EXPECT_DOUBLE_EQ(share_of_one_more({slow, slow}, 10e-6), 0) << "never less than nothing";
}

TEST(SetCosts, AStepIsAtMostNineTenthsArithmeticAndNeverMoreThanByTheBook) {
  const StepShares book{.arithmetic = 100e-6, .memory = 60e-6, .latency = 40e-6};
  EXPECT_DOUBLE_EQ(cost_at(100e-6, book).divided, 90e-6);
  EXPECT_DOUBLE_EQ(cost_at(1e-3, book).divided, 160e-6);
  EXPECT_DOUBLE_EQ(cost_at(1e-3, book).more, kOfOneMore * 160e-6);
  EXPECT_DOUBLE_EQ(cost_of(book).fixed, 40e-6);
}

TEST(SetCosts, AGpuHasTheMemoryThatItsDriverSaysAndNoMoreThanOthersLeave) {
  const GpuModel& book = gpu_or_throw("3070");
  const auto usable = [&](double total, double free, double fraction = .9) {
    return set_device("cuda:0", book, 0, fraction, {total, free}).memory_bytes;
  };
  EXPECT_NEAR(usable(24e9, 0), .9 * 24e9 - kContextBytes, 64e6) << "not the 8 GB of the data sheet";
  EXPECT_LE(usable(24e9, 0), .9 * 24e9 - kContextBytes);
  EXPECT_NEAR(usable(24e9, 5e9), 5e9 - kContextBytes, 64e6) << "somebody else uses it";
  EXPECT_NEAR(usable(24e9, 23.9e9, .5), 12e9 - kContextBytes, 64e6);
  EXPECT_NEAR(usable(0, 0), .9 * 8e9 - kContextBytes, 64e6) << "the driver does not say: the data sheet";
  EXPECT_EQ(usable(24e9, .3e9), 1) << "full is not unknown";
  EXPECT_EQ(usable(24e9, 23.99e9, 1), usable(24e9, 23.98e9, 1)) << "equal GPUs stay equal";
  EXPECT_EQ(usable_gpu_bytes(.9, {}), 0);
}

TEST(SetCosts, ARunStartsAndAddsUpAsHardwareModelSays) {
  const SetDevice pcie = set_device("cuda:0", gpu_or_throw("3070"), 2, .9, {});
  const SetDevice nvlink = set_device("cuda:1", gpu_or_throw("H100"), 3, .9, {});
  EXPECT_EQ(pcie.model, 2);
  EXPECT_DOUBLE_EQ(pcie.start_seconds, kGpuStartSeconds);
  EXPECT_DOUBLE_EQ(pcie.sum_seconds, sum_latency_seconds(gpu_or_throw("3070")));
  EXPECT_DOUBLE_EQ(pcie.float_seconds, sum_float_seconds(gpu_or_throw("3070")));
  EXPECT_LT(nvlink.float_seconds, pcie.float_seconds / 5) << "NVLink";
}

TEST(SetCosts, AGpuOfNoBookIsTakenForASmallOne) {
  EXPECT_EQ(gpu_or_small("NVIDIA GeForce RTX 3070").name, "RTX 3070");
  EXPECT_EQ(gpu_or_small("NVIDIA Something 12000").name, kGpuOfNoBook);
}

}  // namespace
}  // namespace tandem
