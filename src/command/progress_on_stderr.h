// command/progress_on_stderr.h -- a command's own bar: redrawn in place on a terminal, a line now and then elsewhere.
#pragma once

#include "telemetry/progress.h"

namespace tandem {

class Output;

ProgressDisplayOptions progress_on_stderr(const Output& output);

}  // namespace tandem
