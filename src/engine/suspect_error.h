// engine/suspect_error.h -- a comparison of two ways to run a phase differs now, and was equal before.
//
// What was trained in between may be wrong. The launcher saves none of it, sets its checkpoints aside, and says how to
// go on from before (launch/launcher_end.cc).
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/errors.h"

namespace tandem {

class SuspectError : public Error {
 public:
  // `equal_at`: the step of the last equal comparison, counted from 0: so many were done before it. `resume_with`: what
  // to resume with, so that it does not happen again, as it is written: "--set shards_per_pass=1", "TANDEM_GRAPHS=off".
  SuspectError(const std::string& what, std::string why, std::string todo, int64_t equal_at, std::string resume_with)
      : Error(ExitCode::kFailed, what, std::move(why), std::move(todo)),
        equal_at_(equal_at),
        resume_with_(std::move(resume_with)) {}
  int64_t equal_at() const { return equal_at_; }
  const std::string& resume_with() const { return resume_with_; }

 private:
  int64_t equal_at_;
  std::string resume_with_;
};

}  // namespace tandem
