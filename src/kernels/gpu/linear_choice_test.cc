#include "kernels/gpu/linear_choice.h"

#include <gtest/gtest.h>

#include "base/errors.h"

namespace tandem {
namespace {

// Chooses as a library does: a large problem gets another algorithm than a small one, and some run no small ones.
class SizedSource : public AlgorithmSource {
 public:
  std::string version() const override { return library; }
  std::vector<GemmAlgorithm> candidates(const LinearGemmShape& shape) override {
    ++asked;
    GemmAlgorithm first, second;
    first.bytes[0] = static_cast<uint64_t>(shape.shard_rows * shape.job_shards);
    second.bytes[0] = 1;
    return {first, second};
  }
  std::string refusal(const LinearGemmShape& shape, int64_t shards, GemmAlgorithm& algorithm) override {
    algorithm.workspace_bytes = 100 * shards;
    algorithm.details = "tile 7";
    const int64_t rows = shape.shard_rows * shards;
    if (algorithm.bytes[0] == refused) return "never";
    return algorithm.bytes[0] > 1 && rows < fewest ? std::to_string(rows) + " rows are too few" : "";
  }
  std::string library = "lt-1";
  int asked = 0;
  int64_t fewest = 0;
  uint64_t refused = 0;
};

LinearGemmShape shape_of(int64_t rows, int64_t job_shards) {
  return {GemmKind::kForward, rows, job_shards, 768, 3072, FloatType::kBFloat16, false, true};
}

TEST(GemmChoices, OneForAllOfTheJobsRowsAskedForOnce) {
  SizedSource source;
  GemmChoices choices(source);
  EXPECT_EQ(choices.of(shape_of(64, 8)).bytes[0], 512u);
  EXPECT_EQ(choices.of(shape_of(64, 8)).bytes[0], 512u);
  EXPECT_EQ(source.asked, 1);
  EXPECT_EQ(choices.of(shape_of(64, 8)).workspace_bytes, 800);
  EXPECT_EQ(choices.of(shape_of(64, 2)).bytes[0], 128u);
}

TEST(GemmChoices, OnlyAnAlgorithmThatRunsOneShardAloneIsTaken) {
  SizedSource source;
  source.fewest = 100;
  GemmChoices choices(source);
  EXPECT_EQ(choices.of(shape_of(64, 8)).bytes[0], 1u);
  EXPECT_EQ(choices.of(shape_of(100, 8)).bytes[0], 800u);
}

TEST(GemmChoices, NoneThatRunsEveryPartIsAnErrorWithTheReason) {
  SizedSource source;
  source.fewest = 100;
  source.refused = 1;
  GemmChoices choices(source);
  try {
    choices.of(shape_of(64, 8));
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "no GEMM algorithm for 'forward 8x64 768->3072 bf16 bias'");
    EXPECT_EQ(error.why(), "none of 2 runs every part of the batch; the first: 1 of 8 shards: 64 rows are too few");
  }
}

TEST(GemmChoices, LinesForceTheSameInAnotherProcess) {
  SizedSource source;
  GemmChoices first(source);
  first.of(shape_of(64, 8));
  const std::vector<std::string> lines = first.lines();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].substr(0, lines[0].rfind(' ') + 1), "lt-1 forward 8x64 768->3072 bf16 bias = tile 7; ");
  std::string other = lines[0];
  other.replace(other.rfind(' ') + 1, 16, "00000000000000ff");

  GemmChoices resumed(source);
  resumed.force({other});
  EXPECT_EQ(resumed.of(shape_of(64, 8)).bytes[0], 255u);
  EXPECT_EQ(resumed.lines()[0], other);
  EXPECT_EQ(resumed.of(shape_of(32, 8)).bytes[0], 256u) << "what was not recorded is chosen";

  EXPECT_NO_THROW(first.force(lines));
  EXPECT_THROW(first.force({other}), ConfigError) << "too late";
}

TEST(GemmChoices, ARecordThatCantBeFollowedIsRefused) {
  SizedSource source;
  GemmChoices first(source);
  first.of(shape_of(64, 8));
  const std::string line = first.lines()[0];
  for (const std::string& bad : {std::string(), line.substr(1, 20), line.substr(0, line.size() - 1), line + "0",
                                 line.substr(0, line.size() - 1) + "x"})
    EXPECT_THROW(GemmChoices(source).force({bad}), ConfigError) << bad;

  SizedSource newer;
  newer.library = "lt-2";
  EXPECT_THROW(GemmChoices(newer).force({line}), ConfigError);

  GemmChoices resumed(source);
  resumed.force({line});
  source.refused = 512;
  EXPECT_THROW(resumed.of(shape_of(64, 8)), ConfigError) << "no silent choice of another one";
}

TEST(GemmChoices, ShapesThatDifferInAnythingHaveTheirOwn) {
  const LinearGemmShape base = shape_of(64, 8);
  std::vector<LinearGemmShape> others(8, base);
  others[0].kind = GemmKind::kInputGradient;
  others[1].shard_rows = 65;
  others[2].job_shards = 7;
  others[3].in = 769;
  others[4].out = 3073;
  others[5].type = FloatType::kHalf;
  others[6].tf32 = true;
  others[7].bias = false;
  for (const LinearGemmShape& other : others) {
    EXPECT_NE(other.text(), base.text());
    EXPECT_NE(other, base);
  }
}

}  // namespace
}  // namespace tandem
