// explain/remedies.h -- for each cause: why it is slow, what to do, and the command to copy.
//
// A command works as it stands, in the folder in which it was asked for: it names the run by its folder and a new run
// by the old one's recipe.toml, and proposes numbers that the settings allow.
#pragma once

#include <string>

#include "explain/explain.h"

namespace tandem {

// Fills why, remedy and command of a finding.
void add_remedy(SlowDown& finding, const Evidence& evidence, const Explanation& explanation);
// What would still help a healthy run, or nothing.
std::string hint_for(const Evidence& evidence, const Explanation& explanation);

// The part of `loading` (a share of the step) that more loading could take away: what a batch's thread sleeps for, and
// work as far as cores are free for it.
double removable_loading(const Evidence& evidence, double loading);
// Who has the cores that the workers wait for.
enum class Crowd { kOthers, kWorkers, kOwnLoaders };
Crowd crowd_of(const Evidence& evidence);

}  // namespace tandem
