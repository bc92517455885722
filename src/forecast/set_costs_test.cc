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
  const RunCost six = with_batch(cost_at(300e-6, book), 6, 800e-6);
  EXPECT_DOUBLE_EQ(six.more, 100e-6);
  EXPECT_DOUBLE_EQ(with_batch(six, 1, 9).more, six.more);
}

TEST(SetCosts, AGpuOfNoBookIsTakenForASmallOne) {
  EXPECT_EQ(gpu_or_small("NVIDIA GeForce RTX 3070").name, "RTX 3070");
  EXPECT_EQ(gpu_or_small("NVIDIA Something 12000").name, kGpuOfNoBook);
}

}  // namespace
}  // namespace tandem
