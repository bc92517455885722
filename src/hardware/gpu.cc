#include "hardware/gpu.h"

namespace tandem {

std::string_view throttle_name(Throttle reason) {
  switch (reason) {
    case Throttle::kIdle:
      return "idle";
    case Throttle::kApplicationClocks:
      return "application_clocks";
    case Throttle::kPowerCap:
      return "power_cap";
    case Throttle::kHwSlowdown:
      return "hw_slowdown";
    case Throttle::kSyncBoost:
      return "sync_boost";
    case Throttle::kThermalSw:
      return "thermal_sw";
    case Throttle::kThermalHw:
      return "thermal_hw";
    case Throttle::kPowerBrake:
      return "power_brake";
    case Throttle::kDisplayClocks:
      return "display_clocks";
    case Throttle::kOther:
      break;
  }
  return "other";
}

std::string_view throttle_in_words(Throttle reason) {
  switch (reason) {
    case Throttle::kIdle:
      return "nothing to do";
    case Throttle::kApplicationClocks:
      return "clocks set by somebody";
    case Throttle::kPowerCap:
      return "the power limit";
    case Throttle::kHwSlowdown:
      return "the hardware's own slowdown (heat, or a power brake)";
    case Throttle::kSyncBoost:
      return "clocks kept equal with other GPUs";
    case Throttle::kThermalSw:
      return "heat (the driver slows it)";
    case Throttle::kThermalHw:
      return "heat (the hardware halves its clock)";
    case Throttle::kPowerBrake:
      return "the power supply's brake signal";
    case Throttle::kDisplayClocks:
      return "the display's clocks";
    case Throttle::kOther:
      break;
  }
  return "a reason this driver names and we do not know";
}

bool throttle_is_thermal(Throttle reason) {
  return reason == Throttle::kThermalSw || reason == Throttle::kThermalHw || reason == Throttle::kHwSlowdown;
}

}  // namespace tandem
