// apps/chess/stoppable.h -- work that a signal, or whatever else a descriptor tells of, may stop.
#pragma once

#include <functional>
#include <stop_token>

namespace tandem::chess {

// Does `work` in another thread, and returns when it is done. Whenever `wake_fd` can be read, `woken` is called, which
// reads it; where that returns true the work is asked to stop. Throws what the work throws.
void do_stoppable(int wake_fd, const std::function<bool()>& woken, const std::function<void(std::stop_token)>& work);

}  // namespace tandem::chess
