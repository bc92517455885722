#include "runs/run_removal.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/errors.h"
#include "base/file_system.h"
#include "base/printable.h"
#include "base/shell_word.h"
#include "checkpoint/place.h"
#include "runs/agent_runs.h"
#include "telemetry/atomic_file.h"

namespace tandem {

namespace fs = std::filesystem;

namespace {

constexpr char kRemoved[] = ".removed-";

bool lies_in(const fs::path& inner, const fs::path& outer) {
  const auto [end, unused] = std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end());
  return end == outer.end();
}

// Made by a removal that did not come to its end: a folder with at most "run" in it. No link is one.
bool left_by_removal(const fs::path& path) {
  std::error_code none;
  if (!path.filename().string().starts_with(kRemoved)) return false;
  if (!fs::is_directory(fs::symlink_status(path, none))) return false;
  for (fs::directory_iterator entry(path, none), end; !none && entry != end; entry.increment(none))
    if (entry->path().filename() != "run" || !fs::is_directory(entry->symlink_status(none))) return false;
  return !none;
}

}  // namespace

uint64_t folder_bytes(const fs::path& dir) {
  uint64_t bytes = 0;
  std::set<std::pair<dev_t, ino_t>> seen;
  std::error_code error;
  fs::recursive_directory_iterator entry(dir, fs::directory_options::skip_permission_denied, error), end;
  for (; !error && entry != end; entry.increment(error)) {
    struct stat info {};
    if (lstat(entry->path().c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    if (info.st_nlink == 1 || seen.insert({info.st_dev, info.st_ino}).second)
      bytes += static_cast<uint64_t>(info.st_blocks) * 512;
  }
  return bytes;
}

std::map<fs::path, std::vector<std::string>> runs_in_service(const std::vector<fs::path>& runs) {
  std::map<fs::path, std::vector<std::string>> needed;
  for (const fs::path& run : runs) {
    const auto current =
        nlohmann::json::parse(read_small_file(run / "current.json", 1 << 20).value_or(""), nullptr, false);
    if (!current.is_object() || !current.contains("agents") || !current["agents"].is_object()) continue;
    for (const auto& [agent, entry] : current["agents"].items()) {
      if (!entry.is_object() || !entry.contains("run") || !entry["run"].is_string()) continue;
      std::error_code none;
      fs::path real;
      try {
        real = fs::canonical(run_of_entry(entry, run / "current.json"), none);
      } catch (const CheckpointError&) {  // it names nothing that could be lost
        continue;
      }
      if (!none) needed[real].push_back(run.filename().string());
    }
  }
  return needed;
}

void check_removable(const fs::path& dir, const fs::path& root) {
  std::error_code none;
  if (fs::is_symlink(dir.has_filename() ? dir : dir.parent_path(), none)) {
    const fs::path real = fs::canonical(dir, none);
    throw ConfigError(fmt::format("{} is a link, and links are not followed", dir.string()),
                      fmt::format("the run is in {}", real.string()),
                      fmt::format("name that folder: `tandem runs rm {}`", shell_word(real.string())));
  }
  const fs::path real = fs::canonical(dir, none);
  if (none) throw IoError(fmt::format("cannot look at {}", dir.string()), none.value(), "check the path");
  for (const auto& [place, words] : {std::pair{root, "the folder of all runs"}, {fs::path("."), "the current folder"}})
    if (const fs::path inner = fs::canonical(place, none); !none && lies_in(inner, real))
      throw ConfigError(fmt::format("{} is not removed", dir.string()), fmt::format("{} is in it", words),
                        "move what you want to keep, and remove the rest by hand");
  refuse_linked_checkpoints(real / "checkpoints");
  fs::recursive_directory_iterator entry(real, fs::directory_options::skip_permission_denied, none), end;
  for (; !none && entry != end; entry.increment(none))
    if (entry->path().filename() == "checkpoints") refuse_linked_checkpoints(entry->path());
}

void remove_run_folder(const fs::path& dir, const fs::path& root) {
  std::error_code none;
  const fs::path real = fs::canonical(dir, none);
  const fs::path aside = real.parent_path() / (kRemoved + real.filename().string());
  FileSystem& files = FileSystem::real();
  if (files.exists(aside) && !left_by_removal(aside))
    throw ConfigError(fmt::format("{} is in the way", printable(aside.string())),
                      fmt::format("{} is renamed to it before it goes, and it is no left-over of a removal",
                                  printable(real.string())),
                      "look what it is, and move it");
  files.remove_all(aside);
  files.mkdir(aside);
  files.rename(real, aside / "run");  // one folder down, where nobody looks for runs
  for (fs::directory_iterator entry(root, none), end; !none && entry != end; entry.increment(none)) {
    std::error_code ignored;
    if (!entry->is_symlink(ignored)) continue;
    const fs::path target = fs::read_symlink(entry->path(), ignored);
    if ((target.is_absolute() ? target : root / target).lexically_normal() == real) fs::remove(entry->path(), ignored);
  }
  files.remove_all(aside);
}

void clear_removed(const fs::path& root) {
  std::vector<fs::path> left;
  std::error_code none;
  for (fs::directory_iterator entry(root, none), end; !none && entry != end; entry.increment(none)) {
    if (left_by_removal(entry->path())) left.push_back(entry->path());
  }
  for (const fs::path& folder : left) FileSystem::real().remove_all(folder);
}

}  // namespace tandem
