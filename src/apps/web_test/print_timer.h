// apps/web_test/print_timer.h -- `train web-test --from RUN --print-timer`.
#pragma once

#include <string>

#include "command/arguments.h"

namespace tandem {

struct Command;
class RunFolder;

// What the command line sets a key to; empty: nothing.
std::string given(const Arguments& arguments, const std::string& key);

// Prints the daily and the weekly command for systemd and cron. The daily one first gives what was collected a name of
// its own (new.jsonl becomes new-20260131-030000.jsonl): a file that is written over can judge no later model. The
// weekly one learns from all of these.
int print_timer(const Command& command, const RunFolder& run);

}  // namespace tandem
