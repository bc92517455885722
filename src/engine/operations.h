// engine/operations.h -- how many of libtorch's operations a step asks for, and what the asking alone costs.
//
// A step whose operations are tiny is bound by their number, not by arithmetic; `tandem explain` finds it by this.
// Only a few steps are counted (an operation costs about a tenth more there). On a GPU the host's time is measured
// instead (TrainLoop::gpu_seconds).
#pragma once

#include <cstdint>
#include <optional>

namespace tandem {

// Counts this thread's operations while it lives.
class OperationCount {
 public:
  OperationCount();
  ~OperationCount();
  OperationCount(const OperationCount&) = delete;
  int64_t count() const;

 private:
  uint64_t handle_;
  int64_t begin_;
};

// Of this thread's time, for one operation on a few numbers, with its part of the backward pass. Takes a few
// milliseconds.
double seconds_per_operation();

// TANDEM_SLOW_OPERATIONS, for tests; for this thread.
void slow_operations_if_asked();

}  // namespace tandem
