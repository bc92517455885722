#include "monitor/run_finder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>

namespace tandem {
namespace {

namespace fs = std::filesystem;

double changed(const fs::path& file) {
  struct stat info {};
  return ::stat(file.c_str(), &info) == 0 ? static_cast<double>(info.st_mtim.tv_sec) : 0;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  DIR* dir = ::opendir(folder.c_str());
  if (!dir) return names;
  while (const dirent* entry = ::readdir(dir)) {
    if (entry->d_name[0] != '.' && (entry->d_type == DT_DIR || entry->d_type == DT_LNK || entry->d_type == DT_UNKNOWN))
      names.emplace_back(entry->d_name);
  }
  ::closedir(dir);
  return names;
}

}  // namespace

RunFinder::RunFinder(std::vector<fs::path> roots, bool processes, fs::path proc)
    : roots_(std::move(roots)), processes_(processes), proc_(std::move(proc)) {}

void RunFinder::below(const fs::path& root, const std::string& set, double oldest,
                      std::map<fs::path, FoundRun>& found) const {
  for (const std::string& name : names_in(root)) {
    const fs::path dir = root / name;
    const double newest =
        std::max({changed(dir / "run.json"), changed(dir / "metrics.jsonl"), changed(dir / "live.json")});
    if (newest >= oldest) {
      std::error_code error;
      const fs::path real = fs::weakly_canonical(dir, error);
      found.try_emplace(error ? dir : real, FoundRun{dir, set.empty() ? "" : set + "/" + name});
    }
    // A set of runs (web-test) has its agents below.
    if (set.empty() && changed(dir / "agents.json") > 0) below(dir / "agents", name, oldest, found);
  }
}

std::vector<fs::path> RunFinder::folders_of_workers() const {
  std::vector<fs::path> folders;
  for (const std::string& pid : names_in(proc_)) {
    if (!std::all_of(pid.begin(), pid.end(), [](unsigned char c) { return std::isdigit(c); })) continue;
    const int fd = ::open((proc_ / pid / "cmdline").c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    char text[4096];
    const ssize_t got = ::read(fd, text, sizeof text - 1);
    ::close(fd);
    if (got <= 0) continue;
    text[got] = 0;
    // <program>\0work\0<folder>\0
    const std::string program = text;
    const size_t second = program.size() + 1;
    if (!program.ends_with("tandem-worker") || second + 6 >= static_cast<size_t>(got) ||
        std::string(text + second) != "work")
      continue;
    fs::path folder(text + second + 5);
    if (folder.is_relative()) {
      std::error_code error;
      const fs::path cwd = fs::read_symlink(proc_ / pid / "cwd", error);
      if (error) continue;  // another user's
      folder = cwd / folder;
    }
    if (changed(folder / "run.json") > 0) folders.push_back(folder);
  }
  return folders;
}

std::vector<FoundRun> RunFinder::find(double unix_now, double recent_seconds) const {
  std::map<fs::path, FoundRun> found;
  for (const fs::path& root : roots_) below(root, "", unix_now - recent_seconds, found);
  if (processes_) {
    for (const fs::path& folder : folders_of_workers()) {
      std::error_code error;
      const fs::path real = fs::weakly_canonical(folder, error);
      const bool of_set = folder.parent_path().filename() == "agents";
      const fs::path set = folder.parent_path().parent_path();
      found.try_emplace(error ? folder : real,
                        FoundRun{folder, of_set ? set.filename().string() + "/" + folder.filename().string() : ""});
    }
  }
  std::vector<FoundRun> runs;
  for (auto& [real, run] : found) runs.push_back(std::move(run));
  return runs;
}

}  // namespace tandem
