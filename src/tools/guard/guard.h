// tools/guard/guard.h -- `tandem guard`: heat and power of all GPUs of this machine, whoever uses them.
#pragma once

#include <memory>

#include "command/command.h"

namespace tandem {

class Nvml;

int run_guard(const Command& command);
int guard_machine(const Command& command);   // `guard` without a verb
std::unique_ptr<Nvml> open_nvml_or_throw();  // an Error in words where there is no driver or no GPU

}  // namespace tandem
