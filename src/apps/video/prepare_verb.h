// apps/video/prepare_verb.h -- `tandem data prepare video DIR`: decodes each video once, with a bar, and says what
// came.
#pragma once

#include "video/prepare.h"

namespace tandem {

struct Command;  // command/command.h

// Of `data`, whose words were looked at (apps/data_verb.h). Returns the exit code or throws Error.
int prepare_video_data(const Command& command);

// prepare_videos() with tandem-video, where there is one, and a bar on a terminal or a line now and then elsewhere.
PrepareResult prepare_with_bar(const Command& command, const PrepareOptions& options);

}  // namespace tandem
