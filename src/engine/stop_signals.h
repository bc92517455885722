// engine/stop_signals.h -- Ctrl-C, SIGTERM and SIGUSR1 as wishes that the loop reads between steps.
//
// First SIGINT or SIGTERM: finish the step, save, exit (130, 143). A second one: exit at once. SIGUSR1: save and go on.
#pragma once

namespace tandem {

class StopSignals {
 public:
  StopSignals();   // installs the handlers; one object per process
  ~StopSignals();  // puts the former ones back

  int stop_signal() const;  // SIGINT, SIGTERM or 0
  bool take_save_request();
};

}  // namespace tandem
