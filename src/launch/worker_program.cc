#include "launch/worker_program.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/sha256.h"

namespace tandem {
namespace {

// A program that is its own worker has its own file open in any case, whatever its name means by now.
const char* name_to_open(const std::filesystem::path& path) {
  constexpr const char* kSelf = "/proc/self/exe";
  std::error_code none;
  return std::filesystem::read_symlink(kSelf, none) == path ? kSelf : path.c_str();
}

}  // namespace

WorkerProgram::WorkerProgram(std::filesystem::path path) : path_(std::move(path)) {
  const char* name = name_to_open(path_);
  if (access(name, X_OK) == 0) fd_ = open(name, O_RDONLY | O_CLOEXEC);
  struct stat about {};
  if (fd_ < 0 || fstat(fd_, &about) != 0)
    throw IoError(fmt::format("the worker {} cannot be started", path_.string()), errno,
                  "build it with `make build`; it stands beside the `tandem` program");
  char magic[SELFMAG] = {};
  if (pread(fd_, magic, sizeof magic, 0) != SELFMAG || std::memcmp(magic, ELFMAG, SELFMAG) != 0)
    throw ConfigError(
        fmt::format("the worker {} is not a program that tandem can start", path_.string()),
        "it is a script or another kind of file, and a run holds its worker open so that it stays the same",
        "put the built `tandem-worker` there; set what a script would set in the environment of `tandem`");
  size_ = about.st_size;
  written_ = about.st_mtim;
}

WorkerProgram::~WorkerProgram() {
  if (fd_ >= 0) close(fd_);
}

void WorkerProgram::check_unchanged() const {
  struct stat about {};
  if (fstat(fd_, &about) == 0 && about.st_size == size_ && about.st_mtim.tv_sec == written_.tv_sec &&
      about.st_mtim.tv_nsec == written_.tv_nsec)
    return;
  throw Error(ExitCode::kFailed, fmt::format("the worker {} was rewritten while the run went on", path_.string()),
              "a worker of another program may compute other bits",
              "put the program that the run began with back, or stop the run and go on with `tandem resume`");
}

const std::string& WorkerProgram::identity() const {
  if (!identity_.empty()) return identity_;
  Sha256 sum;
  std::vector<std::byte> piece(1 << 20);
  Elf64_Half machine = EM_NONE;  // lies at the same place in a 32-bit file
  for (off_t at = 0;;) {
    const ssize_t got = pread(fd_, piece.data(), piece.size(), at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      throw IoError(fmt::format("cannot read the worker {}", path_.string()), errno, "make it readable (chmod a+r)");
    if (got == 0) break;
    if (at == 0 && got >= static_cast<ssize_t>(sizeof(Elf64_Ehdr)))
      std::memcpy(&machine, piece.data() + offsetof(Elf64_Ehdr, e_machine), sizeof machine);
    sum.update(std::span<const std::byte>(piece).first(static_cast<size_t>(got)));
    at += got;
  }
  return identity_ = fmt::format("{}/{}", machine, sum.hex());
}

bool WorkerProgram::may_meet(const std::string& identity, const std::string& other) {
  return identity == other || identity.substr(0, identity.find('/')) != other.substr(0, other.find('/'));
}

}  // namespace tandem
