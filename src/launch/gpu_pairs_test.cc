#include "launch/gpu_pairs.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

nlohmann::json report(uint64_t generation, nlohmann::json pairs) {
  return {{"generation", generation}, {"pairs", std::move(pairs)}};
}
nlohmann::json in_gpu(int of) { return {{"of", of}, {"gpu", true}, {"why", ""}}; }
nlohmann::json in_host(int of, const std::string& why) { return {{"of", of}, {"gpu", false}, {"why", why}}; }

TEST(GpuPairs, ALineComesOnceAllHaveToldAndOnlyWhereItIsNew) {
  GpuPairs pairs;
  const nlohmann::json first = nlohmann::json::array({in_gpu(1)}), second = nlohmann::json::array({in_gpu(0)});
  EXPECT_EQ(pairs.reported(0, report(1, first), 2), std::nullopt);
  EXPECT_EQ(pairs.reported(1, report(1, second), 2), "2 workers sum by kernels, in each other's memory");
  EXPECT_EQ(pairs.reported(0, report(2, first), 2), std::nullopt) << "the other one's word was of another generation";
  EXPECT_EQ(pairs.reported(1, report(1, second), 2), std::nullopt) << "of the older generation";
  EXPECT_EQ(pairs.reported(1, report(2, second), 2), std::nullopt) << "as before";
}

TEST(GpuPairs, AGenerationThatTellsOfNoneHasNone) {
  GpuPairs pairs;
  const nlohmann::json first = nlohmann::json::array({in_gpu(1)}), second = nlohmann::json::array({in_gpu(0)});
  const auto all_tell = [&](uint64_t generation) {
    pairs.begin(generation);
    pairs.reported(0, report(generation, first), 2);
    return pairs.reported(1, report(generation, second), 2);
  };
  const std::string line = "2 workers sum by kernels, in each other's memory";
  EXPECT_EQ(all_tell(1), line);
  EXPECT_EQ(all_tell(2), std::nullopt) << "as before";
  pairs.begin(3);
  EXPECT_EQ(pairs.reported(0, report(2, first), 2), std::nullopt) << "of the older generation";
  EXPECT_TRUE(pairs.empty()) << "it combines another way";
  EXPECT_EQ(all_tell(4), line);
}

TEST(GpuPairs, APairThroughTheHostIsNamedWithTheReason) {
  GpuPairs pairs;
  pairs.reported(0, report(1, nlohmann::json::array({in_gpu(1), in_host(4, "cuMemSetAccess: no")})), 3);
  pairs.reported(1, report(1, nlohmann::json::array({in_gpu(0), in_gpu(4)})), 3);
  EXPECT_EQ(pairs.reported(4, report(1, nlohmann::json::array({in_host(0, "its GPU lends none"), in_gpu(1)})), 3),
            "3 workers sum by kernels, 2 of 6 ways through pinned host memory (rank 0 of rank 4: cuMemSetAccess: no; "
            "rank 4 of rank 0: its GPU lends none)");
  const nlohmann::json all = pairs.to_json();
  ASSERT_EQ(all.size(), 6u);
  EXPECT_EQ(all[0], (nlohmann::json{{"reader", 0}, {"of", 1}, {"through", "GPU memory"}}));
  EXPECT_EQ(all[1], (nlohmann::json{
                        {"reader", 0}, {"of", 4}, {"through", "pinned host memory"}, {"why", "cuMemSetAccess: no"}}));
}

}  // namespace
}  // namespace tandem
