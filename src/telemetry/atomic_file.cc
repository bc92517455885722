#include "telemetry/atomic_file.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include "base/errors.h"

namespace tandem {
namespace {

// Not state: a source of names.
std::filesystem::path temporary_for(const std::filesystem::path& path) {
  static std::atomic<unsigned> counter{0};
  return path.parent_path() / fmt::format(".tmp-{}-{}-{}", path.filename().string(), ::getpid(), counter.fetch_add(1));
}

constexpr auto kInUse = std::chrono::hours(1);  // a temporary file without a process's number, at the most

// The number at the end of `name`, cut off with the '-' before it.
std::optional<long> take_number(std::string_view& name) {
  const size_t dash = name.rfind('-');
  long number = 0;
  if (dash == std::string_view::npos || dash + 1 == name.size()) return std::nullopt;
  const char* const end = name.data() + name.size();
  if (std::from_chars(name.data() + dash + 1, end, number).ptr != end) return std::nullopt;
  name = name.substr(0, dash);
  return number;
}

// The process that writes it: ".tmp-<file>-<pid>-<n>" of write_file_atomically, or what cut_metrics makes.
std::optional<long> writer_of(std::string_view name) {
  const auto last = take_number(name);
  if (!last) return std::nullopt;
  return name.starts_with(".tmp-") ? take_number(name) : last;
}

// A process that was killed and that nobody has waited for is dead too.
bool is_alive(long pid) {
  if (pid == ::getpid()) return false;
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(stat, line)) return ::kill(static_cast<pid_t>(pid), 0) == 0 || errno == EPERM;
  const size_t end = line.rfind(')');  // the name before it may hold anything
  return end != std::string::npos && end + 2 < line.size() && line[end + 2] != 'Z' && line[end + 2] != 'X';
}

bool is_abandoned(const std::filesystem::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  std::error_code error;
  if (!name.starts_with(".tmp-") && !name.starts_with("metrics.jsonl.tmp-")) return false;
  if (!std::filesystem::is_regular_file(entry.symlink_status(error)) || error) return false;
  if (const auto writer = writer_of(name)) return !is_alive(*writer);
  const auto written = std::filesystem::last_write_time(entry.path(), error);  // ".tmp-<file>" of replace_file
  return !error && std::filesystem::file_time_type::clock::now() - written > kInUse;
}

}  // namespace

void remove_abandoned_temporaries(const std::filesystem::path& folder) {
  std::error_code error;
  std::vector<std::filesystem::path> abandoned;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error))
    if (is_abandoned(*entry)) abandoned.push_back(entry->path());
  for (const auto& path : abandoned) std::filesystem::remove(path, error);
}

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
