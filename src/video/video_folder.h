// video/video_folder.h -- which videos a folder holds, and which files belong to each.
//
//   DIR/Videos/mouse_3.mp4  DIR/Annotations/prediction_mouse_3_1.csv  DIR/Poses/mouse_3DLC_....csv  DIR/classes.csv
//   DIR/animals.csv
// or all of it in DIR itself. Names that begin with a dot are passed over. Links are not followed: a link is named and
// left out. A video without annotations is a
// warning and left out of training; annotations without a video, and no video at all, are errors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "market/data_findings.h"
#include "video/class_table.h"

namespace tandem {

struct AnnotationFile {
  int32_t trial = 0;
  std::filesystem::path path;
};

struct VideoFiles {
  std::string name;                           // "mouse_3"; of videos, sorted
  std::filesystem::path video;                // empty: only its frames are here
  std::vector<AnnotationFile> annotations;    // by the number of the trial
  std::filesystem::path pose;                 // empty: none
  std::vector<std::filesystem::path> frames;  // files of its frames in the cache, of any size
};

struct VideoFolder {
  std::filesystem::path folder, cache;
  std::vector<VideoFiles> videos;
  std::filesystem::path classes;  // classes.csv; empty: none
  std::filesystem::path animals;  // animals.csv; empty: none
  DataFindings findings;
};

// `cache`: where frames are; empty: DIR/frames. Throws ConfigError if there is no such folder.
VideoFolder read_video_folder(const std::filesystem::path& folder, const std::filesystem::path& cache = {});

// "mouse_3.mp4" at 256 x 256: <cache>/mouse_3.mp4.256x256.frames
std::filesystem::path frame_file_path(const std::filesystem::path& cache, const std::string& video_file, int32_t height,
                                      int32_t width);

// Throws ConfigError with the first few errors, if there are any.
void refuse_video_errors(const DataFindings& findings, const std::filesystem::path& folder);

}  // namespace tandem
