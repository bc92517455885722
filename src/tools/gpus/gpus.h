// tools/gpus/gpus.h -- `tandem gpus`, and what is said of a driver that does not answer.
#pragma once

#include "base/errors.h"
#include "command/command.h"

namespace tandem {

struct NvmlStatus;

int run_gpus(const Command& command);

// What is done about a driver that does not answer; it hangs nvidia-smi as well.
inline constexpr const char* kDriverHangsTodo =
    "sudo dmesg | grep -i -e NVRM -e Xid   (then restart the machine; a driver that is only slow: "
    "TANDEM_DRIVER_SECONDS=60)";
Error driver_hangs(const NvmlStatus& status);

}  // namespace tandem
