// base/fault_points.h -- named places where a test can make this process fail.
//
// TANDEM_FAULT="before-combine rank=1 step=17 do=kill" (several, separated by ';') makes rank 1 kill itself there. The
// launcher takes the variable away from replacements, so a fault strikes once. Without it a point costs one load.
//   do = kill | stop | exit | abort | segv | oom (std::bad_alloc; on a GPU, more than it has is asked for) | throw
//   (std::runtime_error) | slow (6 s pass, as with a bad disk) | hang (the device never ends its work) | flip (one bit
//   of the state; the point's place does it)
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

// In the order in which a worker passes them in a step, those inside a sum by kernels (TANDEM_PLANE=peer, pinned), then
// those of the launcher (rank -1).
inline constexpr std::string_view kFaultPoints[] = {
    "start",          "before-phase",  "in-phase",       "before-combine", "after-combine",  "before-apply",
    "after-apply",    "in-validation", "at-boundary",    "in-snapshot",    "after-snapshot", "in-hold",
    "before-restore", "in-restore",    "after-restore",  "before-adopt",   "peer-shown",     "peer-published",
    "peer-added",     "peer-reduced",  "launcher-order", "before-rename",  "after-rename"};

namespace fault_detail {
extern bool armed;
bool strike(std::string_view point, int64_t step);
}  // namespace fault_detail

// How this process's device fails, where that is not the CPU; set before the first point.
struct DeviceFaults {
  void (*hang)() = nullptr;  // returns; what is queued next will wait for ever
  void (*oom)() = nullptr;   // throws
};
void use_device_faults(const DeviceFaults& faults);

// Reads TANDEM_FAULT for this rank; -1 is the launcher. Throws ConfigError for a point or an act that does not exist.
void arm_faults(int rank);

// Fails here if it was asked for. Returns true for acts that the caller carries out (flip).
inline bool fault_point(std::string_view point, int64_t step) {
  return fault_detail::armed && fault_detail::strike(point, step);
}

}  // namespace tandem
