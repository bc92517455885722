// video/damaged_frames.h -- a file of frames that can't be used, and how to have it made again.
#pragma once

#include "base/errors.h"

namespace tandem {

// Exit code 2, as for all data of the user's.
class DamagedFrames : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

}  // namespace tandem
