// explain/remedies.h -- for each cause: why it is slow, what to do, and the command to copy.
#pragma once

#include <string>

#include "explain/explain.h"

namespace tandem {

// Fills why, remedy and command of a finding.
void add_remedy(SlowDown& finding, const Evidence& evidence, const Explanation& explanation);
// What would still help a healthy run, or nothing.
std::string hint_for(const Evidence& evidence, const Explanation& explanation);

}  // namespace tandem
