// Memory of a GPU that processes share, over a stand-in for CUDA's driver library.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "fake_script.h"
#include "hardware/cuda_shared_memory.h"

namespace tandem {
namespace {

constexpr size_t kBytes = 100'000;

int left() {
  void* const library = dlopen(FAKE_CUDA, RTLD_NOW | RTLD_NOLOAD);
  return library ? reinterpret_cast<int (*)()>(dlsym(library, "fake_cuda_left"))() : 0;
}

// A process that adopts the memory, finds `first` in it and writes `second`, once a byte has come through `go`.
pid_t reader(const CudaSharedMemory& memory, const std::string& first, const std::string& second, int go = -1) {
  const int fd = dup(memory.fd());
  const pid_t pid = fork();
  if (pid != 0) {
    close(fd);
    return pid;
  }
  const auto mine = CudaSharedMemory::adopt(fd, kBytes);
  char byte;
  if (go >= 0 && read(go, &byte, 1) != 1) _exit(2);
  if (first != static_cast<char*>(mine->data()) + kBytes / 2) _exit(1);
  std::strcpy(static_cast<char*>(mine->data()) + kBytes / 2, second.c_str());
  _exit(0);
}
int end(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(CudaSharedMemory, OneProcessReadsAndWritesWhatAnotherMade) {
  const FakeScript script(R"({"preset": "1xh200"})");
  const auto memory = CudaSharedMemory::create(kBytes);
  EXPECT_GE(memory->fd(), 0);
  char* const words = static_cast<char*>(memory->data()) + kBytes / 2;
  std::strcpy(words, "from the owner");
  EXPECT_EQ(end(reader(*memory, "from the owner", "and back")), 0);
  EXPECT_STREQ(words, "and back");
}

TEST(CudaSharedMemory, OutlivesItsOwner) {
  const FakeScript script(R"({"preset": "1xh200"})");
  int go[2];
  ASSERT_EQ(pipe(go), 0);
  auto memory = CudaSharedMemory::create(kBytes);
  std::strcpy(static_cast<char*>(memory->data()) + kBytes / 2, "still here");
  const pid_t pid = reader(*memory, "still here", "", go[0]);
  memory.reset();
  EXPECT_EQ(left(), 0);
  ASSERT_EQ(write(go[1], "x", 1), 1);
  EXPECT_EQ(end(pid), 0);
  close(go[0]), close(go[1]);
}

TEST(CudaSharedMemory, WhatCantBeMadeSaysWhyAndLeavesNothing) {
  for (const char* refusing : {"cuMemCreate", "cuMemExportToShareableHandle", "cuMemGetAllocationGranularity",
                               "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"}) {
    const FakeScript script(std::string(R"({"preset": "1xh200", "refuse": {")") + refusing + R"(": 801}})");
    try {
      CudaSharedMemory::create(kBytes);
      FAIL() << refusing << " was not refused";
    } catch (const std::runtime_error& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with(refusing)) << error.what();
    }
    EXPECT_EQ(left(), 0) << refusing;
  }
}

TEST(CudaSharedMemory, PinnedMemoryThatAGpuSeesElsewhereIsNotTakenForItsOwnAddress) {
  constexpr char kRefuse[] = R"({"preset": "1xh200", "refuse": {"cuMemHostGetDevicePointer_v2": )";
  const int host = 0;
  const auto found = [&](const std::string& text) {
    const FakeScript script(text);
    return gpu_has_address_of_host(&host);
  };
  EXPECT_TRUE(found(R"({"preset": "1xh200"})"));
  EXPECT_FALSE(found(std::string(kRefuse) + "0}}")) << "it is mapped at another address";
  EXPECT_FALSE(found(std::string(kRefuse) + "1}}"));
}

TEST(CudaSharedMemory, WhatCantBeMappedSaysWhyAndLeavesNothing) {
  const FakeScript whole(R"({"preset": "1xh200"})");
  const auto memory = CudaSharedMemory::create(kBytes);
  const int before = left();
  for (const char* refusing : {"cuMemImportFromShareableHandle", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"}) {
    const FakeScript script(std::string(R"({"preset": "1xh200", "refuse": {")") + refusing + R"(": 101}})");
    const int fd = dup(memory->fd());
    EXPECT_THROW(CudaSharedMemory::adopt(fd, kBytes), std::runtime_error) << refusing;
    EXPECT_EQ(left(), before) << refusing;
    EXPECT_EQ(close(fd), -1) << "the descriptor was owned by the call";
  }
}

}  // namespace
}  // namespace tandem
