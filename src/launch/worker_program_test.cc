#include "launch/worker_program.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <fstream>

#include "base/errors.h"
#include "base/temp_dir.h"
#include "launch/worker_process.h"

namespace tandem {
namespace {

// A copy of the stand-in, which exits with the code that TANDEM_STAND_IN names.
struct Copy {
  Copy() : path(dir / "worker") { std::filesystem::copy_file(STAND_IN_WORKER, path); }
  std::shared_ptr<const WorkerProgram> pin() const { return std::make_shared<WorkerProgram>(path); }
  void put_another_in_its_place() const {
    std::filesystem::copy_file("/bin/false", dir / "new");
    std::filesystem::rename(dir / "new", path);
  }
  void rewrite() const { std::ofstream(path, std::ios::app) << "more"; }
  TempDir dir;
  std::filesystem::path path;
};

int exit_code_of(const std::shared_ptr<const WorkerProgram>& program, const std::filesystem::path& log) {
  auto worker = WorkerProcess::start({.program = program,
                                      .arguments = {"work", "."},
                                      .environment = {{"TANDEM_STAND_IN", "exit 42"}},
                                      .inherit = {},
                                      .log = log});
  const int status = worker.reap();
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(WorkerProgram, AFilePutInItsPlaceOrItsRemovalChangesNothing) {
  const Copy copy;
  const auto program = copy.pin();
  EXPECT_EQ(exit_code_of(program, "/dev/null"), 42);
  copy.put_another_in_its_place();
  EXPECT_EQ(exit_code_of(program, "/dev/null"), 42);
  std::filesystem::remove(copy.path);
  EXPECT_EQ(exit_code_of(program, "/dev/null"), 42);
}

TEST(WorkerProgram, AFileRewrittenInPlaceIsRefusedWithWhatToDo) {
  const Copy copy;
  const auto program = copy.pin();
  copy.rewrite();
  try {
    exit_code_of(program, "/dev/null");
    FAIL() << "it was started";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("rewritten"), std::string::npos);
    EXPECT_NE(error.todo().find("resume"), std::string::npos);
  }
}

TEST(WorkerProgram, OneThatIsNotThereOrMayNotRunIsRefused) {
  const Copy copy;
  EXPECT_THROW(WorkerProgram(copy.dir / "nothing"), IoError);
}

TEST(WorkerProgram, OtherBuildsDoNotMeetButOtherProcessorsMay) {
  const Copy one, same, other;
  other.rewrite();
  const std::string a = one.pin()->identity(), b = other.pin()->identity();
  EXPECT_EQ(a, same.pin()->identity());
  EXPECT_TRUE(WorkerProgram::may_meet(a, a));
  EXPECT_FALSE(WorkerProgram::may_meet(a, b));
  EXPECT_TRUE(WorkerProgram::may_meet("62/0123", "183/4567"));
}

TEST(WorkerProcess, WhatItSaysIsDroppedWhereItsLogCannotBeOpened) {
  const Copy copy;
  EXPECT_EQ(exit_code_of(copy.pin(), copy.dir / "no such folder" / "log"), 42);
}

}  // namespace
}  // namespace tandem
