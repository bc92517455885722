#include "command/out_file.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <vector>

#include "base/errors.h"
#include "base/file_system.h"
#include "base/printable.h"
#include "base/write_whole.h"
#include "command/output.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLinks = 8;

// /dev/stdout, /dev/fd/3 and links to them name a descriptor of this process, whatever it is open on: written to
// directly, since opening a redirected file anew would begin at its first byte.
std::optional<int> descriptor_of(fs::path path) {
  std::error_code error;
  const fs::path descriptors = fs::canonical("/proc/self/fd", error);
  for (int link = 0; link < kMostLinks && !error; ++link) {
    const fs::path folder = fs::canonical(path.has_parent_path() ? path.parent_path() : fs::path("."), error);
    const std::string name = path.filename().string();
    if (error) break;
    if (folder == descriptors && !name.empty() && name.size() < 6 && std::ranges::all_of(name, ::isdigit))
      return std::stoi(name);
    const fs::path next = fs::read_symlink(path, error);
    path = next.is_absolute() ? next : folder / next;
  }
  return std::nullopt;
}

class Stream {
 public:
  explicit Stream(const fs::path& file) : file_(file) {
    ::fflush(nullptr);  // what was said before comes before
    const auto number = descriptor_of(file);
    fd_ = number ? ::dup(*number) : ::open(file.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (fd_ < 0) fail();
  }
  ~Stream() { ::close(fd_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void write(std::string_view text) {
    errno = write_whole(fd_, text);
    if (errno != 0) fail();
  }

 private:
  [[noreturn]] void fail() const {
    throw IoError(fmt::format("cannot write to {}", file_.string()), errno, "look who reads it, or name a file");
  }
  fs::path file_;
  int fd_ = -1;
};

[[noreturn]] void refuse_out_file(const IoError& error, const char* flag) {
  if (error.error_number() == EPIPE) throw error;  // the reader had enough
  throw ConfigError(error.what(), error.why(),
                    fmt::format("choose a file in a folder that exists and is writable with {}", flag));
}

}  // namespace

bool is_stream(const fs::path& file) {
  struct stat info {};
  if (descriptor_of(file)) return true;
  return ::stat(file.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

void check_out_file(const std::string& file, const char* flag) {
  if (file.empty() || file == "-") return;
  std::error_code none;
  const fs::path path = file;
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::string why;
  if (fs::is_directory(path, none) || !path.has_filename()) {
    why = "it is a folder";
  } else if (is_stream(path)) {
    if (!descriptor_of(path) && access(path.c_str(), W_OK) != 0) why = strerror(errno);
  } else if (!fs::is_directory(folder, none)) {
    why = fmt::format("there is no folder {}", printable(folder.string()));
  } else if (access(folder.c_str(), W_OK | X_OK) != 0) {
    why = fmt::format("{}: {}", printable(folder.string()), strerror(errno));
  }
  if (!why.empty())
    throw ConfigError(fmt::format("cannot write {}", printable(file)), why,
                      fmt::format("choose a file in a folder that exists and is writable with {}", flag));
}

void write_out_file(const std::string& file, std::string_view text, const char* flag) {
  try {
    if (is_stream(file))
      Stream(file).write(text);
    else
      replace_file(FileSystem::real(), file, text);
  } catch (const IoError& error) {
    refuse_out_file(error, flag);
  }
}

void copy_to_stream(const fs::path& from, const fs::path& stream, const char* flag) {
  try {
    Stream out(stream);
    std::ifstream in(from, std::ios::binary);
    std::vector<char> block(size_t{1} << 20);
    while (in.read(block.data(), static_cast<std::streamsize>(block.size())) || in.gcount() > 0)
      out.write({block.data(), static_cast<size_t>(in.gcount())});
    if (in.bad()) throw IoError(fmt::format("cannot read {}", from.string()), EIO, "check the disk");
  } catch (const IoError& error) {
    refuse_out_file(error, flag);
  }
}

void say_where(const Output& output, const fs::path& file) {
  if (is_stream(file))
    output.say(fmt::format("written to {}", file.string()));
  else
    output.path(file.string());
}

void refuse_csv_with_json(const std::string& csv, bool json) {
  if (csv == "-" && json)
    throw ConfigError("--json and --csv - both want stdout", "one answer goes there",
                      "leave one out, or name a file: --csv table.csv");
}

std::string csv_cell(std::string_view text) {
  std::string cell = "\"";
  for (const char c : text) cell += c == '"' ? std::string("\"\"") : std::string(1, c);
  return cell + "\"";
}

}  // namespace tandem
