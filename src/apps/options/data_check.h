// apps/options/data_check.h -- `tandem data check options DIR`: what is wrong with a folder of market data, by file and
// line.
#pragma once

namespace tandem {

struct Command;  // command/command.h

// Of `data`, whose words were looked at (apps/data_verb.h). Returns the exit code or throws Error.
int check_options_data(const Command& command);

}  // namespace tandem
