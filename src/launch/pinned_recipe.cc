#include "launch/pinned_recipe.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "base/errors.h"
#include "base/file_system.h"
#include "runs/run_folder.h"

namespace tandem {
namespace {

constexpr off_t kMostBytes = 1 << 20;
constexpr char kMoreMemory[] = "free some memory or close other programs, and try again";

bool write_whole(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t count = pwrite(fd, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    done += static_cast<size_t>(count);
  }
  return true;
}

[[noreturn]] void cannot_read(int error) {
  throw IoError("cannot read the run's recipe from the launcher", error, "start the run again with `tandem resume`");
}

// By position: all who inherited the descriptor share one offset.
std::string read_whole(int fd) {
  struct stat about {};
  if (fstat(fd, &about) != 0) cannot_read(errno);
  if (about.st_size > kMostBytes) cannot_read(EFBIG);
  std::string text(static_cast<size_t>(about.st_size), '\0');
  for (size_t done = 0; done < text.size();) {
    const ssize_t count = pread(fd, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) cannot_read(count < 0 ? errno : EIO);
    done += static_cast<size_t>(count);
  }
  return text;
}

}  // namespace

PinnedRecipe::PinnedRecipe(std::string toml) : text_(std::move(toml)) {
  fd_ = memfd_create("tandem-recipe", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd_ < 0) throw IoError("cannot keep the run's recipe in memory", errno, kMoreMemory);
  if (write_whole(fd_, text_) && fcntl(fd_, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
    return;
  const int error = errno;
  close(fd_);
  throw IoError("cannot keep the run's recipe in memory", error,
                error == EFBIG ? "raise the limit of file sizes (ulimit -f)" : kMoreMemory);
}

PinnedRecipe::~PinnedRecipe() { close(fd_); }

std::optional<std::string> recipe_given() {
  const char* number = std::getenv(PinnedRecipe::kVariable);
  if (!number || !*number) return std::nullopt;
  const int fd = std::atoi(number);
  unsetenv(PinnedRecipe::kVariable);  // it means nothing to those whom this process starts
  std::string text = read_whole(fd);
  close(fd);
  return text;
}

std::string recipe_to_work(const std::filesystem::path& run_dir) {
  if (auto given = recipe_given()) return *std::move(given);
  return std::string(read_whole_file(FileSystem::real(), RunFolder::open(run_dir).recipe_toml(), kMostBytes).text());
}

}  // namespace tandem
