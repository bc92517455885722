// monitor/run_finder.h -- which folders to look at: the runs of given roots, and those that workers of this machine
// work in, wherever that is.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace tandem {

struct FoundRun {
  std::filesystem::path dir;
  std::string name;  // of an agent of a set: "web-test-...-a1b2c3/analysis"; else empty
};

class RunFinder {
 public:
  // `processes`: also follow the processes `tandem-worker work <folder>` that this user may look at.
  RunFinder(std::vector<std::filesystem::path> roots, bool processes, std::filesystem::path proc = "/proc");
  // Runs that changed in the last `recent_seconds`, sorted by folder name.
  std::vector<FoundRun> find(double unix_now, double recent_seconds) const;

 private:
  void below(const std::filesystem::path& root, const std::string& set, double oldest,
             std::map<std::filesystem::path, FoundRun>& found) const;
  std::vector<std::filesystem::path> folders_of_workers() const;
  std::vector<std::filesystem::path> roots_;
  bool processes_;
  std::filesystem::path proc_;
};

}  // namespace tandem
