// video/split.h -- which trials train and which judge, and what the second part has in common with the first.
//
// Whole groups go to one part: trials, videos or animals. Groups are put in order by name, shuffled by the seed alone,
// and the first ones judge until they have the share of the trials that was asked for; both parts get at least one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "video/video_set.h"

namespace tandem {

enum class SplitBy { kTrial, kVideo, kAnimal };
SplitBy read_split_by(std::string_view word);  // "trial", "video", "animal"; throws ConfigError
const char* split_word(SplitBy by);

struct SplitOptions {
  SplitBy by = SplitBy::kVideo;
  double validation_share = 0.2;
  uint64_t seed = 42;
};

struct VideoSplit {
  std::vector<int32_t> training, validation;  // trials (VideoSet::trials()), ascending
  // One line each for what both parts hold: "9 of 12 validation trials are of videos that training sees too ...".
  // Empty: nothing leaks.
  std::vector<std::string> leaks;
};

// Throws ConfigError where there is one group only.
VideoSplit split_videos(const VideoSet& set, const SplitOptions& options);

}  // namespace tandem
