#include "base/shared_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <stdexcept>
#include <utility>

#include "base/errors.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U  // Linux 6.3; older kernels answer EINVAL
#endif

namespace tandem {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

const char* const kMoreMemory =
    "free some memory, or allow this container more; /dev/shm is not used, its size does not matter";

// A memfd is a file to the limit of file sizes.
std::string advice_on_memory(int error) {
  return error == EFBIG ? "raise the limit of file sizes (ulimit -f): it holds for shared memory too" : kMoreMemory;
}

int make_descriptor(const std::string& name) {
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  const int fd = memfd_create(name.c_str(), flags | MFD_NOEXEC_SEAL);
  return fd >= 0 || errno != EINVAL ? fd : memfd_create(name.c_str(), flags);
}

// A descriptor that is closed unless the object took it over.
struct Closer {
  int fd;
  ~Closer() {
    if (fd >= 0) close(fd);
  }
  int take() { return std::exchange(fd, -1); }
};

std::byte* map(int fd, uint64_t bytes, const std::string& what) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) throw IoError("cannot map " + what, errno, kMoreMemory);
  // Where the machine allows large pages for shared memory on request, the sums of large vectors miss the TLB less.
  madvise(data, bytes, MADV_HUGEPAGE);
  return static_cast<std::byte*>(data);
}

}  // namespace

SharedMemory SharedMemory::create(const std::string& name, uint64_t bytes) {
  const std::string what = "shared memory " + name + " of " + std::to_string(bytes) + " bytes";
  Closer fd{make_descriptor(name)};
  if (fd.fd < 0) throw IoError("cannot make " + what, errno, kMoreMemory);
  if (ftruncate(fd.fd, static_cast<off_t>(bytes)) != 0)
    throw IoError("cannot make " + what, errno, advice_on_memory(errno));
  if (fcntl(fd.fd, F_ADD_SEALS, kSeals) != 0)
    throw IoError("cannot seal " + what, errno, "this kernel can't seal a memfd; Linux 3.17 or later can");
  SharedMemory made;
  made.data_ = map(fd.fd, bytes, what);
  made.size_ = bytes;
  made.fd_ = fd.take();
  return made;
}

SharedMemory SharedMemory::adopt(int descriptor, uint64_t bytes) {
  const std::string what = "shared memory from descriptor " + std::to_string(descriptor);
  const char* const todo = "this process was started by something else than tandem, or by another version of it";
  Closer fd{descriptor};
  const int seals = fcntl(fd.fd, F_GET_SEALS);
  if (seals < 0) throw IoError("cannot use " + what, errno, todo);
  if ((seals & F_SEAL_SHRINK) == 0) throw IoError("cannot use " + what + ": it is not sealed", EPERM, todo);
  struct stat status;
  if (fstat(fd.fd, &status) != 0) throw IoError("cannot use " + what, errno, todo);
  if (static_cast<uint64_t>(status.st_size) < bytes) {
    throw IoError(
        "cannot use " + what + ": it has " + std::to_string(status.st_size) + " bytes, not " + std::to_string(bytes),
        EINVAL, todo);
  }
  fcntl(fd.fd, F_SETFD, FD_CLOEXEC);
  SharedMemory made;
  made.data_ = map(fd.fd, bytes, what);
  made.size_ = bytes;
  made.fd_ = fd.take();
  return made;
}

void SharedMemory::write(uint64_t at, std::span<const std::byte> from) const {
  if (at > size_ || from.size() > size_ - at) throw std::logic_error("a write beyond the end of shared memory");
  while (!from.empty()) {
    const ssize_t done = pwrite(fd_, from.data(), from.size(), static_cast<off_t>(at));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0 && errno != ENOMEM && errno != ENOSPC) throw IoError("cannot fill shared memory", errno, kMoreMemory);
    if (done <= 0) throw IoError("cannot fill shared memory", ENOMEM, kMoreMemory);  // "no space" is memory here
    at += static_cast<uint64_t>(done);
    from = from.subspan(static_cast<size_t>(done));
  }
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_) munmap(data_, size_);
  if (fd_ >= 0) close(fd_);
}

}  // namespace tandem
