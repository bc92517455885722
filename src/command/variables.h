// command/variables.h -- the TANDEM_ variables that somebody reads, in one list.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "command/context.h"
#include "command/output.h"

namespace tandem {

// Without the prefix, beside those of settings (TANDEM_STEPS) and the descriptors that processes of a run hand on
// (TANDEM_..._FD). tests/python/strangers_test.py holds it against the sources.
std::span<const std::string_view> program_variables();

// Warns of each variable of the environment with that prefix that no recipe and no part of the program reads: it was
// set to change something, and changes nothing.
void warn_of_unread_variables(const CliContext& context, const Output& output);

}  // namespace tandem
