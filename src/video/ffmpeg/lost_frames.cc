#include "video/ffmpeg/lost_frames.h"

#include <iterator>

namespace tandem {

void LostFrames::sent(int64_t time) {
  if (time == kNoTime)
    without_times_ = true;
  else
    waiting_.insert(time);
}

int64_t LostFrames::before(int64_t time) {
  if (time == kNoTime) {
    without_times_ = true;
    return 0;
  }
  const auto own = waiting_.lower_bound(time);
  const auto passed = std::distance(waiting_.begin(), own);
  const bool there = own != waiting_.end() && *own == time;
  waiting_.erase(waiting_.begin(), there ? std::next(own) : own);
  if (passed > 0 && !damaged_) without_frames_ = true;
  return damaged_ && !unknown() ? passed : 0;
}

int64_t LostFrames::at_end() const { return damaged_ && !unknown() ? static_cast<int64_t>(waiting_.size()) : 0; }

}  // namespace tandem
