#include "launch/fault_book.h"

#include <gtest/gtest.h>

#include "launch/local_worker_handle.h"

namespace tandem {
namespace {

LocalWorkerHandle worker_that_said(const std::string& kind) {
  LocalWorkerHandle worker(1, DeviceSpec{}, WorkerCommand{}, "rank-1.log");
  worker.failed_kind = kind;
  worker.failed_why = "for a reason";
  return worker;
}

TEST(FaultBook, TheSameFailureOnTwoWorkersEndsTheRunWithItsName) {
  FaultBook book("tandem", "run");
  const LocalWorkerHandle worker = worker_that_said("libtorch refused an operation");
  EXPECT_FALSE(book.verdict(worker, {.exit_code = 1}, 17, {}));
  const auto verdict = book.verdict(worker, {.exit_code = 1}, 17, {});
  ASSERT_TRUE(verdict);
  EXPECT_STREQ(verdict->what(), "libtorch refused an operation");
}

TEST(FaultBook, WhoDiesInItsStartWhileOthersTrainEndsNoRunHoweverOften) {
  FaultBook book("tandem", "run");
  const LocalWorkerHandle worker = worker_that_said("its data is gone");
  for (int i = 0; i < 6; ++i) EXPECT_FALSE(book.verdict(worker, {.exit_code = 2}, 0, {.start_only = true})) << i;
  EXPECT_EQ(book.deaths(), 6);
}

}  // namespace
}  // namespace tandem
