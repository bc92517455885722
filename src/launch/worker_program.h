// launch/worker_program.h -- the program that all workers of a run are, held open from the run's start to its end.
//
// Workers are started from the open file, not from its name: an upgrade that puts another file in its place, as
// installers and linkers do, changes nothing for runs that are going on. A file that was rewritten in place is refused.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <memory>
#include <string>

namespace tandem {

class WorkerProgram {
 public:
  explicit WorkerProgram(std::filesystem::path path);  // throws IoError if it can't be started
  ~WorkerProgram();
  WorkerProgram(const WorkerProgram&) = delete;
  WorkerProgram& operator=(const WorkerProgram&) = delete;

  const std::filesystem::path& path() const { return path_; }
  int fd() const { return fd_; }        // closes on exec
  void check_unchanged() const;         // throws Error
  const std::string& identity() const;  // "<ELF machine>/<SHA-256 of the file>"; read at the first call

  // Two machines may run these together. Programs for other processors are never equal: there the workers' kinds decide
  // (exact = "require").
  static bool may_meet(const std::string& identity, const std::string& other);

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  off_t size_ = 0;
  timespec written_{};
  mutable std::string identity_;
};

// What ranks compare before they work together.
struct Build {
  std::string version;
  std::shared_ptr<const WorkerProgram> worker;  // none: only in tests
  std::string identity() const { return worker ? worker->identity() : ""; }
};

}  // namespace tandem
