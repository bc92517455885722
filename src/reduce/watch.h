// reduce/watch.h -- how a worker that waits for others learns that they will never come.
#pragma once

#include <cstdint>
#include <exception>

namespace tandem {

// Thrown by begin(), add(), finish() and all_reduce() of a combine whose members have changed. The phase's
// contributions are void; nothing was applied. The worker enters the next generation (fleet/generation.h) and runs the
// phase again, or restores a snapshot.
class MembersChanged : public std::exception {
 public:
  const char* what() const noexcept override { return "the members of the job have changed"; }
};

class Watch {
 public:
  virtual ~Watch() = default;
  // True if the combine `sequence number` of `generation` can't complete any more: the generation is revoked and the
  // sequence number lies past the cut. Cheap: asked while spinning. It may become true at any moment, and stays so.
  virtual bool abandoned(uint64_t generation, int64_t sequence) const = 0;
};

}  // namespace tandem
