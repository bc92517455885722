// command/command.h -- what every command has in hand: the parsed line, the program, and where its words go.
#pragma once

#include <string>

#include "command/arguments.h"
#include "command/output.h"

namespace tandem {

class Gathering;

struct Command {
  const Arguments& arguments;
  const CliContext& context;
  const Output& output;
  Gathering* ranks = nullptr;  // of another launcher; this is rank 0 then (command/ranks.h)

  // The first word after the command, or `otherwise`.
  std::string subject(const std::string& otherwise = "") const {
    return arguments.subjects.empty() ? otherwise : arguments.subjects.front();
  }
};

}  // namespace tandem
