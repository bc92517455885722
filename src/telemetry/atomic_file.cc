#include "telemetry/atomic_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>

#include "base/errors.h"

namespace tandem {
namespace {

// Not state: a source of names.
std::filesystem::path temporary_for(const std::filesystem::path& path) {
  static std::atomic<unsigned> counter{0};
  return path.parent_path() / fmt::format(".tmp-{}-{}-{}", path.filename().string(), ::getpid(), counter.fetch_add(1));
}

}  // namespace

void write_file_atomically(const std::filesystem::path& path, std::string_view text, Durability durability,
                           FileSystem& fs) {
  const auto temporary = temporary_for(path);
  OpenFile file(fs, fs.open_new(temporary));
  try {
    file.write_all(std::as_bytes(std::span(text)));
    if (durability == Durability::kPowerCut) fs.fsync(file.handle());
    file.close();
    fs.rename(temporary, path);
  } catch (...) {
    ::unlink(temporary.c_str());  // not through fs: its failure must not hide the first one
    throw;
  }
  if (durability == Durability::kPowerCut)
    fs.fsync_dir(path.has_parent_path() ? path.parent_path() : std::filesystem::path("."));
}

std::optional<std::string> read_small_file(const std::filesystem::path& path, size_t limit) {
  try {
    return std::string(read_whole_file(FileSystem::real(), path, limit).text());
  } catch (const IoError&) {
    return std::nullopt;
  }
}

}  // namespace tandem
