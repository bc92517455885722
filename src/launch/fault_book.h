// launch/fault_book.h -- what is to be done about a worker that died: replaced, left out, or the end of the run.
//
// A device whose worker died is given another one, at most three times in a minute. What strikes again is no accident:
// the same failure at the same step on another worker, or one step in which four of them crash, ends the run with its
// name. What was killed from outside does not count.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "base/errors.h"
#include "launch/worker_handle.h"

namespace tandem {

class FaultBook {
 public:
  FaultBook(std::string program, const std::filesystem::path& run_dir)
      : program_(std::move(program)), run_(run_dir.string()), logs_((run_dir / "logs").string()) {}

  struct Around {
    bool alone = false;       // nobody else runs
    bool start_only = false;  // it died in its start while others train: whatever it was, it is no reason to end them
  };
  // The run ends because of this death; nothing if it goes on.
  std::optional<Error> verdict(const WorkerHandle& worker, const Death& death, int64_t step, Around around);
  // May this device have another worker? Counts it.
  bool may_restart(WorkerHandle& worker, double now);
  // Training got past this step: what happened before it is forgiven.
  void got_past(int64_t step) { at_step_.erase(at_step_.begin(), at_step_.lower_bound(step)); }
  int deaths() const { return deaths_; }

  // "rank 1 (cpu:1) was killed (SIGKILL) ... in phase 'learn' of step 58 (last words: ...)"
  static std::string line(const WorkerHandle& worker, const Death& death, const std::string& position,
                          const std::string& fenced_because, const std::string& last_words);
  // Before any worker was up.
  static Error never_started(const WorkerHandle& worker, const Death& death, const std::string& last_words);

 private:
  std::string program_, run_, logs_;
  std::map<int64_t, int> at_step_;
  std::map<std::string, int> failures_;
  int deaths_ = 0;
};

}  // namespace tandem
