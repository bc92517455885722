#include "base/shared_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/errors.h"

namespace tandem {
namespace {

TEST(SharedMemory, StartsZeroedAndIsSeenByAChildThatAdoptsIt) {
  const SharedMemory mine = SharedMemory::create("test", 10000);
  ASSERT_EQ(mine.bytes().size(), 10000u);
  for (std::byte b : mine.bytes()) ASSERT_EQ(b, std::byte{0});
  const int inherited = dup(mine.fd());
  const pid_t child = fork();
  if (child == 0) {
    try {
      const SharedMemory theirs = SharedMemory::adopt(inherited, 10000);
      theirs.bytes()[9999] = std::byte{42};
      _exit(0);
    } catch (...) {
      _exit(1);
    }
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(mine.bytes()[9999], std::byte{42}) << "and outlives the one who wrote it";
  close(inherited);
}

TEST(SharedMemory, WhatIsWrittenPastTheMappingIsSeenThroughIt) {
  const SharedMemory mine = SharedMemory::create("test", 10000);
  const std::vector<std::byte> text(5000, std::byte{7});
  mine.write(3000, text);
  EXPECT_EQ(mine.bytes()[2999], std::byte{0});
  EXPECT_EQ(mine.bytes()[3000], std::byte{7});
  EXPECT_EQ(mine.bytes()[7999], std::byte{7});
  EXPECT_EQ(mine.bytes()[8000], std::byte{0});
  EXPECT_THROW(mine.write(5001, text), std::logic_error) << "never beyond the end";
  EXPECT_THROW(mine.write(~uint64_t{0}, text), std::logic_error);
}

TEST(SharedMemory, NobodyCanResizeOrUnsealIt) {
  const SharedMemory memory = SharedMemory::create("test", 8192);
  EXPECT_NE(ftruncate(memory.fd(), 4096), 0);
  EXPECT_NE(ftruncate(memory.fd(), 16384), 0);
  EXPECT_NE(fcntl(memory.fd(), F_ADD_SEALS, F_SEAL_WRITE), 0);
}

TEST(SharedMemory, IsNotInheritedByProgramsThatAreStartedLater) {
  const SharedMemory made = SharedMemory::create("test", 4096);
  EXPECT_NE(fcntl(made.fd(), F_GETFD) & FD_CLOEXEC, 0);
  const int inherited = dup(made.fd());
  ASSERT_EQ(fcntl(inherited, F_GETFD) & FD_CLOEXEC, 0);
  const SharedMemory adopted = SharedMemory::adopt(inherited, 4096);
  EXPECT_NE(fcntl(adopted.fd(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(SharedMemory, AdoptRefusesWhatCouldBeShrunkOrIsTooSmallOrIsNoMemory) {
  const int unsealed = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(unsealed, 4096), 0);
  EXPECT_THROW(SharedMemory::adopt(unsealed, 4096), IoError);
  EXPECT_EQ(fcntl(unsealed, F_GETFD), -1) << "adopt owns the descriptor, refused or not";
  const SharedMemory small = SharedMemory::create("test", 4096);
  EXPECT_THROW(SharedMemory::adopt(dup(small.fd()), 4097), IoError);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_THROW(SharedMemory::adopt(ends[0], 1), IoError);
  close(ends[1]);
  EXPECT_THROW(SharedMemory::adopt(-1, 1), IoError);
}

TEST(SharedMemory, AMovedOneIsEmptyAndTheOtherHoldsTheMemory) {
  SharedMemory a = SharedMemory::create("test", 4096);
  const std::byte* at = a.bytes().data();
  SharedMemory b = std::move(a);
  EXPECT_FALSE(a);
  EXPECT_EQ(b.bytes().data(), at);
  SharedMemory c;
  c = std::move(b);
  EXPECT_EQ(c.bytes().data(), at);
}

TEST(SharedMemory, TooMuchIsRefusedWithTheRemedy) {
  try {
    SharedMemory::create("test", uint64_t{1} << 62);
    FAIL();
  } catch (const IoError& e) {
    EXPECT_NE(e.todo().find("memory"), std::string::npos);
  }
}

}  // namespace
}  // namespace tandem
