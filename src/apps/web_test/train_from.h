// apps/web_test/train_from.h -- `train --from RUN`: goes on learning from a trained run, and lets the new model replace
// the old if it is not worse.
#pragma once

#include "command/command.h"

namespace tandem {

int train_agents_from(const Command& command);

}  // namespace tandem
