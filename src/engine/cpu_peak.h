// engine/cpu_peak.h -- how much memory the tensors of some work take at most, on a CPU.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstdint>
#include <memory>

namespace tandem {

// Counts what this thread's tensors allocate while it lives, beside what was there before.
class CpuPeak {
 public:
  CpuPeak() : counter_(std::make_shared<Counter>()), guard_(c10::DebugInfoKind::PROFILER_STATE, counter_) {}
  size_t bytes() const { return static_cast<size_t>(counter_->peak); }

 private:
  struct Counter : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device device) override {
      if (!device.is_cpu()) return;
      now += bytes;
      peak = std::max(peak, now);
    }
    bool memoryProfilingEnabled() const override { return true; }
    int64_t now = 0, peak = 0;
  };
  std::shared_ptr<Counter> counter_;
  c10::DebugInfoGuard guard_;
};

}  // namespace tandem
