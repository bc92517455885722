// command/child_output.h -- runs another program to its end and reads what it says on stdout.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace tandem {

struct ChildProgram {
  std::vector<std::string> words;  // the program first, found in PATH where it has no '/'
  std::vector<std::pair<std::string, std::string>> environment = {};  // beside ours
  bool silent = false;                                                // what it says on stderr goes nowhere
  size_t most_text = 1 << 20;                                         // bytes of stdout that are kept, about
};

struct ChildOutput {
  std::string text;     // of stdout, up to most_text
  int code = -1;        // exit code; -1: it has none
  int signal = 0;       // that ended it
  std::string trouble;  // why it could not be started; empty: it was
  bool ok() const { return trouble.empty() && code == 0; }
  std::string ending() const;  // "code 3", "signal 9", "it could not be started: No such file or directory"
};

// It dies with us: a reader that was killed leaves nobody behind.
ChildOutput run_child(const ChildProgram& program);

}  // namespace tandem
