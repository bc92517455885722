#include "launch/fault_book.h"

#include <fmt/format.h>
#include <signal.h>

#include "base/shell_word.h"

namespace tandem {
namespace {

constexpr int kMostRestarts = 3;
constexpr double kWellSeconds = 60;  // a worker that lived longer had no bad start
constexpr int kMostDeathsAtOneStep = 4;

}  // namespace

std::optional<Error> FaultBook::verdict(const WorkerHandle& worker, const Death& death, int64_t step, Around around) {
  ++deaths_;
  if (around.start_only) return std::nullopt;
  if (!worker.failed_kind.empty()) {
    const int again = ++failures_[fmt::format("{} {} {}", step, worker.failed_kind, worker.failed_why)];
    if (again >= 2 || (around.alone && !death.out_of_memory))
      return Error(
          death.out_of_memory ? ExitCode::kOutOfMemory : ExitCode::kFailed, worker.failed_kind, worker.failed_why,
          death.out_of_memory ? "a smaller batch_size or model, or accumulation = 2; what is saved is intact"
                              : "if it is your own model, check its shapes; otherwise please report it with " + logs_);
  }
  // What was killed from outside, or taken out by us, says nothing about the step.
  if (death.fenced || (death.signal == SIGKILL && worker.failed_kind.empty())) return std::nullopt;
  if (++at_step_[step] < kMostDeathsAtOneStep) return std::nullopt;
  return Error(ExitCode::kFailed, fmt::format("step {} kills every worker that runs it", step + 1),
               fmt::format("{} {}, the fourth to die there", worker.name(), death.cause),
               fmt::format("look at it with `{} resume {} --devices cpu:1` under a debugger, or report it with {}",
                           program_, shell_word(run_), logs_));
}

bool FaultBook::may_restart(WorkerHandle& worker, double now) {
  if (now - worker.started_at > kWellSeconds) worker.restarts = 0;
  if (worker.restarts >= kMostRestarts) return false;
  ++worker.restarts;
  return true;
}

std::string FaultBook::line(const WorkerHandle& worker, const Death& death, const std::string& position,
                            const std::string& fenced_because, const std::string& last_words) {
  if (!fenced_because.empty())
    return fmt::format("{} was taken out: {} in {}", worker.name(), fenced_because, position);
  return fmt::format("{} {} in {}{}", worker.name(), death.cause, position,
                     last_words.empty() ? "" : fmt::format(" (last words: {})", last_words));
}

Error FaultBook::never_started(const WorkerHandle& worker, const Death& death, const std::string& last_words) {
  return Error(death.out_of_memory ? ExitCode::kOutOfMemory : ExitCode::kFailed,
               fmt::format("{} {} before training began", worker.name(), death.cause),
               last_words.empty() ? "it said nothing" : fmt::format("its last words: {}", last_words),
               fmt::format("see {}", worker.log_name()));
}

}  // namespace tandem
