#include "apps/chess/perft/perft_on_gpu.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/errors.h"
#include "base/temp_dir.h"
#include "world/chess/fen.h"

namespace tandem {
namespace {

// A program that stands where the worker would, and answers as a script says.
class PerftOnGpuTest : public testing::Test {
 protected:
  CliContext with_worker(const std::string& script) {
    CliContext context;
    context.program = "tandem";
    context.worker = dir_ / "tandem-worker";
    std::ofstream(context.worker) << "#!/bin/sh\n" << script << "\n";
    std::filesystem::permissions(context.worker, std::filesystem::perms::owner_all);
    return context;
  }
  PerftOnGpu count(const std::string& script) {
    return perft_on_gpu(with_worker(script), gpu_, chess::position_of_fen("7k/8/8/8/8/8/r7/7K w - - 0 1"), 5);
  }

  TempDir dir_;
  const DeviceSpec gpu_{.kind = DeviceSpec::Kind::kCuda, .index = 1, .gpu = {.uuid = "GPU-1234"}};
};

TEST_F(PerftOnGpuTest, TheWorkerIsAskedAndItsNumbersBelongToTheMoves) {
  const PerftOnGpu counted = count(
      "test \"$*\" = 'chess-perft 5 7k/8/8/8/8/8/r7/7K w - - 0 1' && test $CUDA_VISIBLE_DEVICES = GPU-1234 && "
      "test $TANDEM_DEVICE = cuda && echo '{\"gpu\":\"A GPU\",\"nodes\":[18446744073709551615],\"seconds\":2.5}'");
  ASSERT_EQ(counted.moves.size(), 1u);
  EXPECT_EQ(counted.moves[0].move, chess::Move(7, 6));
  EXPECT_EQ(counted.moves[0].nodes, UINT64_MAX);
  EXPECT_EQ(counted.seconds, 2.5);
  EXPECT_EQ(counted.gpu, "A GPU");
}

TEST_F(PerftOnGpuTest, AWorkerThatFailsIsToldWithItsCode) {
  try {
    count("exit 4");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kOutOfMemory);
    EXPECT_STREQ(error.what(), "positions could not be counted on cuda:1");
    EXPECT_EQ(error.why(), "the worker ended with code 4; its words are above");
  }
}

TEST_F(PerftOnGpuTest, AnswersOfAnotherWorkerAreRefused) {
  for (const char* answer : {"", "nothing", "[]", "{}", "{\"nodes\":[1,2]}", "{\"nodes\":7}", "{\"nodes\":[-1]}"})
    EXPECT_THROW(count(fmt::format("echo '{}'", answer)), Error) << answer;
}

TEST_F(PerftOnGpuTest, WithoutAWorkerNothingIsStarted) {
  CliContext context;
  context.worker = dir_ / "nowhere";
  EXPECT_THROW(perft_on_gpu(context, gpu_, chess::start_position(), 5), Error);
}

}  // namespace
}  // namespace tandem
