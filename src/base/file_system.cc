#include "base/file_system.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/errors.h"

namespace tandem {
namespace {

namespace stdfs = std::filesystem;

std::string advice(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
      return "free some space on that disk, or choose another folder with --run-dir";
    case EACCES:
    case EPERM:
    case EROFS:
      return "give this user the right to write there, or choose another folder with --run-dir";
    case EMFILE:
    case ENFILE:
      return "raise the limit of open files (ulimit -n)";
    case EFBIG:
      return "raise the limit of file sizes (ulimit -f), or use a file system that holds larger files";
    case ENOENT:
      return "check the path";
    default:
      return "check the disk and the kernel's log (dmesg)";
  }
}

[[noreturn]] void fail(std::string_view action, const stdfs::path& path, int error_number) {
  throw IoError(fmt::format("cannot {} {}", action, path.string()), error_number, advice(error_number));
}

template <class Call>
auto retry_interrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace

FileSystem& FileSystem::real() {
  static FileSystem instance;
  return instance;
}

FileHandle FileSystem::open_new(const stdfs::path& path) {
  const int fd = retry_interrupted([&] { return ::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666); });
  if (fd < 0) fail("create", path, errno);
  return {fd, path};
}

FileHandle FileSystem::open_read(const stdfs::path& path) {
  // O_NONBLOCK, because opening a pipe that stands in a file's place would wait for ever.
  const int fd = retry_interrupted([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); });
  if (fd < 0) fail("open", path, errno);
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    const int error_number = S_ISDIR(info.st_mode) ? EISDIR : EINVAL;
    ::close(fd);
    fail("read (not a regular file)", path, error_number);
  }
  return {fd, path};
}

std::size_t FileSystem::write(const FileHandle& file, std::span<const std::byte> bytes) {
  const ssize_t count = retry_interrupted([&] { return ::write(file.fd, bytes.data(), bytes.size()); });
  if (count < 0) fail("write", file.path, errno);
  if (count == 0 && !bytes.empty()) fail("write", file.path, EIO);  // or the caller's loop would never end
  return static_cast<std::size_t>(count);
}

std::size_t FileSystem::read(const FileHandle& file, std::span<std::byte> bytes) {
  const ssize_t count = retry_interrupted([&] { return ::read(file.fd, bytes.data(), bytes.size()); });
  if (count < 0) fail("read", file.path, errno);
  return static_cast<std::size_t>(count);
}

std::uint64_t FileSystem::size(const FileHandle& file) {
  struct stat info {};
  if (::fstat(file.fd, &info) != 0) fail("read", file.path, errno);
  return static_cast<std::uint64_t>(info.st_size);
}

void FileSystem::allocate(const FileHandle& file, std::uint64_t bytes) {
  if (bytes == 0) return;
  // Not posix_fallocate: where the file system cannot reserve, glibc writes a byte into every block instead.
  const int result = retry_interrupted([&] { return ::fallocate(file.fd, 0, 0, static_cast<off_t>(bytes)); });
  if (result != 0 && errno != EOPNOTSUPP && errno != ENOSYS)
    fail(fmt::format("reserve {} bytes for", bytes), file.path, errno);
}

void FileSystem::fsync(const FileHandle& file) {
  if (retry_interrupted([&] { return ::fsync(file.fd); }) != 0) fail("flush to disk", file.path, errno);
}

void FileSystem::close(const FileHandle& file) {
  // Never retried: on Linux the descriptor is gone even after EINTR, and its number may be somebody else's by now.
  if (::close(file.fd) != 0 && errno != EINTR) fail("close", file.path, errno);
}

void FileSystem::rename(const stdfs::path& from, const stdfs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail(fmt::format("rename {} to", from.string()), to, errno);
}

void FileSystem::link(const stdfs::path& from, const stdfs::path& to) {
  if (::link(from.c_str(), to.c_str()) == 0) return;
  if (errno != EPERM && errno != EOPNOTSUPP && errno != EXDEV && errno != EMLINK && errno != ENOSYS)
    fail(fmt::format("link {} to", from.string()), to, errno);
  OpenFile source(*this, open_read(from)), copy(*this, open_new(to));
  std::vector<std::byte> buffer(1 << 20);
  while (const std::size_t got = read(source.handle(), buffer)) copy.write_all(std::span(buffer).first(got));
  fsync(copy.handle());
  copy.close();
}

void FileSystem::mkdir(const stdfs::path& path) {
  std::error_code error;
  stdfs::create_directories(path, error);
  if (error) fail("make the folder", path, error.value());
}

void FileSystem::remove_all(const stdfs::path& path) {
  std::error_code error;
  stdfs::remove_all(path, error);
  if (error) fail("remove", path, error.value());
}

void FileSystem::fsync_dir(const stdfs::path& path) {
  const int fd = retry_interrupted([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (fd < 0) fail("open the folder", path, errno);
  const int result = retry_interrupted([&] { return ::fsync(fd); });
  const int error_number = errno;
  ::close(fd);
  // Some network file systems know no fsync of folders; what they promise about renames, they promise without it.
  if (result != 0 && error_number != EINVAL) fail("flush the folder to disk", path, error_number);
}

bool FileSystem::exists(const stdfs::path& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) == 0) return true;
  if (errno != ENOENT && errno != ENOTDIR) fail("look at", path, errno);
  return false;
}

std::vector<std::string> FileSystem::list(const stdfs::path& dir) {
  std::vector<std::string> names;
  std::error_code error;
  stdfs::directory_iterator entry(dir, error);
  for (; !error && entry != stdfs::directory_iterator(); entry.increment(error))
    names.push_back(entry->path().filename().string());
  if (error) fail("list the folder", dir, error.value());
  std::sort(names.begin(), names.end());
  return names;
}

std::uint64_t FileSystem::free_bytes(const stdfs::path& dir) {
  struct statvfs info {};
  if (::statvfs(dir.c_str(), &info) != 0) fail("ask for the free space of", dir, errno);
  return static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize;
}

FileHandle FileSystem::lock_dir(const stdfs::path& dir) {
  const int fd = retry_interrupted([&] { return ::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (fd < 0) fail("open the folder", dir, errno);
  if (retry_interrupted([&] { return ::flock(fd, LOCK_EX | LOCK_NB); }) == 0) return {fd, dir};
  const int error_number = errno;
  ::close(fd);
  if (error_number == EWOULDBLOCK) fail("lock the folder", dir, error_number);
  return {};
}

OpenFile::OpenFile(OpenFile&& other) noexcept
    : fs_(std::exchange(other.fs_, nullptr)), handle_(std::exchange(other.handle_, {})) {}

OpenFile& OpenFile::operator=(OpenFile&& other) noexcept {
  if (this != &other) {
    close_quietly();
    fs_ = std::exchange(other.fs_, nullptr);
    handle_ = std::exchange(other.handle_, {});
  }
  return *this;
}

OpenFile::~OpenFile() { close_quietly(); }

void OpenFile::close_quietly() noexcept {
  try {
    close();
  } catch (const Error&) {  // the caller is already on the way out with the error that matters
  }
}

void OpenFile::write_all(std::span<const std::byte> bytes) {
  while (!bytes.empty()) bytes = bytes.subspan(fs_->write(handle_, bytes));
}

void OpenFile::close() {
  FileSystem* fs = std::exchange(fs_, nullptr);
  const FileHandle handle = std::exchange(handle_, {});
  if (fs && handle.fd >= 0) fs->close(handle);
}

FileBytes read_whole_file(FileSystem& fs, const stdfs::path& path, std::uint64_t limit) {
  OpenFile file(fs, fs.open_read(path));
  const std::uint64_t size = fs.size(file.handle());
  if (size > limit) fail(fmt::format("take in {} bytes of", size), path, EFBIG);
  FileBytes bytes{std::make_unique_for_overwrite<std::byte[]>(size), 0};
  while (bytes.size < size) {
    const std::size_t count = fs.read(file.handle(), {bytes.data.get() + bytes.size, size - bytes.size});
    if (count == 0) break;  // it was cut while we read: the caller sees a shorter file
    bytes.size += count;
  }
  return bytes;
}

void replace_file(FileSystem& fs, const stdfs::path& path, std::string_view text) {
  const stdfs::path beside = path.parent_path() / (".tmp-" + path.filename().string());
  if (fs.exists(beside)) fs.remove_all(beside);  // left by a crash
  OpenFile file(fs, fs.open_new(beside));
  try {
    file.write_all(std::as_bytes(std::span(text.data(), text.size())));
    fs.fsync(file.handle());
    file.close();
    fs.rename(beside, path);
  } catch (const Error&) {
    try {
      fs.remove_all(beside);
    } catch (const Error&) {  // the next call removes it
    }
    throw;
  }
  fs.fsync_dir(path.has_parent_path() ? path.parent_path() : stdfs::path("."));
}

}  // namespace tandem
