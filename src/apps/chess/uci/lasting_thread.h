// apps/chess/uci/lasting_thread.h -- does something in a thread that lives as long as the process.
//
// A parent-death signal (PR_SET_PDEATHSIG) comes at the end of the thread that forked, not of the process: an engine
// that a search thread started would die with the search.
#pragma once

#include <functional>

namespace tandem::chess {

// Returns when `act`, which throws nothing, is done.
void in_lasting_thread(const std::function<void()>& act);

}  // namespace tandem::chess
