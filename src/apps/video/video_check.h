// apps/video/video_check.h -- `tandem data check video DIR`: what is wrong with videos and annotations, by file and
// line; the classes, and what a split would leave in common.
#pragma once

namespace tandem {

struct Command;  // command/command.h

// Of `data`, whose words were looked at (apps/data_verb.h). Returns the exit code or throws Error.
int check_video_data(const Command& command);

}  // namespace tandem
