// video/prepare.h -- fills the frame cache of a folder: each video is decoded once, several at the same time.
//
// A kill loses at most the videos in work: each file of frames appears whole. What is there and was made from the video
// as it is now stays; a video that changed is decoded again; frames of another video that stand in the place are an
// error by name. A video that is empty, cut or damaged is an error too, and the others go on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "video/video_folder.h"
#include "video/video_program.h"

namespace tandem {

struct PrepareOptions {
  std::filesystem::path folder, cache;  // cache empty: <folder>/frames
  int32_t height = 256, width = 256;
  int32_t jobs = 0;             // videos at the same time; 0: as many as cores
  bool accept_damaged = false;  // what came of a damaged video is kept, with a warning
  bool to_train = false;        // annotated videos alone; what was kept of damaged ones stays
};

struct PrepareProgress {
  int64_t videos_done = 0, videos = 0;
  int64_t frames_done = 0, frames = 0;  // frames: as the files say, of all videos to be decoded; 0: not known
};

struct PreparedVideo {
  std::string name;     // "mouse_3.mp4"
  std::string outcome;  // "decoded", "unchanged", "frames alone" or "failed"
  int64_t frames = 0;
  std::filesystem::path file;
};

struct PrepareResult {
  std::vector<PreparedVideo> videos;  // by name
  DataFindings findings;
  int64_t frames = 0, bytes = 0, decoded = 0;  // decoded: videos
  double seconds = 0;
  bool stopped = false;
};

// `progress` is called from this thread a few times a second; where it returns false, what is in work is given up and
// the rest is not begun. Without a program (nullptr) videos that have no frames yet are errors. Throws ConfigError
// where the folder holds no videos, IoError where the cache can't be written.
PrepareResult prepare_videos(const PrepareOptions& options, const VideoProgram* program,
                             const std::function<bool(const PrepareProgress&)>& progress = {});

// Is the file of frames of every annotated video there and of the video as it is now? Reads no video.
bool frames_are_ready(const PrepareOptions& options);

}  // namespace tandem
