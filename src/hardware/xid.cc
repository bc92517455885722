// hardware/xid.cc -- what the driver's Xid errors mean, after NVIDIA's "Xid Errors" catalog (docs.nvidia.com/deploy).
#include "hardware/nvml.h"

namespace tandem {

XidMeaning xid_meaning(uint64_t xid) {
  const std::string reset =
      "stop what runs on the GPU and reset it: sudo nvidia-smi -r; if it comes back, restart the machine";
  const std::string watch = "nothing now; if it repeats on this GPU, look at its power and cooling";
  switch (xid) {
    case 8:
      return {"the GPU stopped processing (a kernel ran into the watchdog)", watch, false};
    case 13:
      return {"a kernel did something illegal (graphics engine exception)",
              "run again with compute-sanitizer; if other programs fail too, test the GPU", false};
    case 31:
      return {"a kernel touched memory that is not its own (MMU fault)",
              "run again with compute-sanitizer; if other programs fail too, test the GPU", false};
    case 32:
      return {"a corrupted push buffer: PCIe, driver or memory", "reseat the GPU or its riser and update the driver",
              false};
    case 43:
      return {"the GPU stopped processing; the program was ended", watch, false};
    case 45:
      return {"channels of a program were removed after an earlier error or its end", watch, false};
    case 48:
      return {"a double-bit ECC error: memory that can't be corrected", reset, true};
    case 61:
    case 62:
      return {"the GPU's own microcontroller halted", reset, true};
    case 63:
      return {"a page of memory was retired or a row remapped", "reset the GPU at the next pause: sudo nvidia-smi -r",
              false};
    case 64:
      return {"a page could not be retired or a row not remapped", reset + "; if it repeats, replace the GPU", true};
    case 68:
      return {"a video engine exception", watch, false};
    case 69:
      return {"a graphics engine class error", watch, false};
    case 74:
      return {"an NVLink error", "check the NVLink bridge or the switch: nvidia-smi nvlink -e", true};
    case 79:
      return {"the GPU has fallen off the bus",
              "restart the machine; if it repeats, check its power cables, PSU, riser and cooling", true};
    case 92:
      return {"many single-bit ECC errors", "run nvidia-smi -q -d ECC and watch the count", false};
    case 94:
      return {"a memory error that was contained: only the program that used it is hit",
              "start the run again; reset the GPU at the next pause", false};
    case 95:
      return {"a memory error that was not contained", reset, true};
    case 109:
      return {"a context switch timed out", reset, true};
    case 119:
    case 120:
      return {"the GPU's system processor (GSP) does not answer",
              reset + "; or load the driver with NVreg_EnableGpuFirmware=0", true};
    case 140:
      return {"an ECC error that was not recovered", reset, true};
    case 143:
      return {"the GPU's initialisation failed", reset, true};
    default:
      break;
  }
  return {"Xid " + std::to_string(xid), "look it up: https://docs.nvidia.com/deploy/xid-errors", false};
}

}  // namespace tandem
