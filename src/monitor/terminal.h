// monitor/terminal.h -- the screen in a real terminal, by ncurses: keys, sizes, suspend and resume.
#pragma once

#include "monitor/sample_feed.h"
#include "monitor/sample_history.h"

namespace tandem {

struct TerminalOptions {
  bool color = true;
  double interval_s = 1;  // between samples
  int64_t count = 0;      // end after so many samples; 0: when the user ends it
};

// Shows samples until `q` (0), or until `stop_fd` is readable (-1). Throws ConfigError where the terminal can't be
// driven.
int show_in_terminal(SampleFeed& feed, History& history, int stop_fd, const TerminalOptions& options);

}  // namespace tandem
