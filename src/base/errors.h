// base/errors.h -- errors that say what happened, why, and what to do, each with its exit code.
//
// Three kinds are kept apart: the user's (ConfigError, exit 2), external ones (a full disk, a damaged checkpoint, a
// lost peer: typed, the engine may recover), and ours (assert). The codes are printed in `tandem --help` and never
// change.
#pragma once

#include <stdexcept>
#include <string>

namespace tandem {

enum class ExitCode : int {
  kOk = 0,
  kFailed = 1,
  kUsage = 2,
  kCheckFailed = 3,
  kOutOfMemory = 4,
  kCheckpointUnusable = 5,
  kPeerLost = 6,
  kGuardStopped = 7,  // heat, power, NaN
  kResumable = 75,    // stopped by a limit; start again to go on
  kInterrupted = 130,
  kTerminated = 143,
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& what, std::string why, std::string todo)
      : std::runtime_error(what), code_(code), why_(std::move(why)), todo_(std::move(todo)) {}
  ExitCode code() const { return code_; }
  const std::string& why() const { return why_; }
  const std::string& todo() const { return todo_; }
  // "error: <what>\n  why    <why>\n  do     <todo>\n"
  std::string render() const;

 private:
  ExitCode code_;
  std::string why_, todo_;
};

// The user's: a bad flag, key, value or folder.
class ConfigError : public Error {
 public:
  ConfigError(const std::string& what, std::string why, std::string todo)
      : Error(ExitCode::kUsage, what, std::move(why), std::move(todo)) {}
};

// A checkpoint that is damaged, cut, foreign, of a newer format, or does not fit the run.
class CheckpointError : public Error {
 public:
  CheckpointError(const std::string& what, std::string why, std::string todo)
      : Error(ExitCode::kCheckpointUnusable, what, std::move(why), std::move(todo)) {}
};

// A file operation that failed; errno is kept, to distinguish a full disk from a broken one.
class IoError : public Error {
 public:
  IoError(const std::string& what, int error_number, std::string todo);
  int error_number() const { return error_number_; }

 private:
  int error_number_;
};

}  // namespace tandem
