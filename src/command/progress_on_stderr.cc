#include "command/progress_on_stderr.h"

#include <unistd.h>

#include <cstdio>

#include "command/output.h"

namespace tandem {

ProgressDisplayOptions progress_on_stderr(const Output& output) {
  return {.tty = isatty(STDERR_FILENO) != 0,
          .color = output.color(),
          .out = [](std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); },
          .width = stderr_columns};
}

}  // namespace tandem
