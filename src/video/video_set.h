// video/video_set.h -- a folder's videos as training sees them: frames laid end to end, trials, a class for each frame.
//
// Nothing is decoded here: frames come from the cache that `tandem data prepare video` fills (video/prepare.h), mapped
// into memory. Equal files give an equal set, in an equal order, on every machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "market/data_findings.h"
#include "video/class_table.h"
#include "video/frame_file.h"

namespace tandem {

struct VideoSetOptions {
  std::filesystem::path folder;
  std::filesystem::path cache;  // of frames; empty: <folder>/frames
  int32_t height = 256, width = 256;
  bool merge_withdraw = true;  // guard and flinch count as paw_withdraw, where there is no classes.csv
  bool accept_gaps = false;    // video/annotations.h
  bool poses = false;          // every video must have one then
  // An animal's name is that of its video up to here, where no animals.csv says it; empty: the whole name.
  std::string animal_separator = "_";
  bool verify = true;  // the sums of all frames, which reads every byte once
};

struct VideoTrial {
  int32_t video = 0;             // in VideoSet::videos()
  int32_t number = 0;            // from the file's name
  int64_t first_frame = 0;       // in the set's frames
  std::vector<int16_t> classes;  // of each frame, or kNoLabel (video/annotations.h)
  std::string file;              // "prediction_mouse_3_1.csv"
  int64_t frames() const { return static_cast<int64_t>(classes.size()); }
};

struct SetVideo {
  std::string name, animal;
  int64_t first_frame = 0;  // in the set's frames
  FrameFile frames;
};

class VideoSet {
 public:
  const ClassTable& classes() const { return classes_; }
  const std::vector<SetVideo>& videos() const { return videos_; }    // by name
  const std::vector<VideoTrial>& trials() const { return trials_; }  // by video, then number; each lies in one video
  int64_t frames() const { return frames_; }                         // of all videos, also those that no trial covers
  int32_t height() const { return height_; }
  int32_t width() const { return width_; }
  int64_t frame_bytes() const { return int64_t{height_} * width_; }
  bool generated() const { return generated_; }
  bool animals_named() const { return animals_named_; }  // by animals.csv, not by the names of videos
  // Of one video's frames, `count` from `first` on (numbers of the set): they lie one after the other. The caller stays
  // inside one video; a clip does. From any thread.
  const uint8_t* frame(int64_t first) const;
  // 18 numbers a frame (video/pose.h), not yet scaled; empty: no poses were asked for.
  const std::vector<float>& poses() const { return poses_; }

  // SHA-256 of all that training sees: classes, labels, trials and the frames' sums by way of the videos' SHA-256.
  const std::string& digest() const { return digest_; }
  const DataFindings& findings() const { return findings_; }  // warnings alone; errors were thrown
  std::string description() const;  // "12 videos, 48 trials, 17280 frames of 256 x 256, 7 classes"

 private:
  friend class VideoSetReader;
  ClassTable classes_;
  std::vector<SetVideo> videos_;
  std::vector<VideoTrial> trials_;
  std::vector<float> poses_;
  int64_t frames_ = 0;
  int32_t height_ = 0, width_ = 0;
  bool generated_ = false, animals_named_ = false;
  std::string digest_;
  DataFindings findings_;
};

// Throws ConfigError: no videos, a label that is unknown, frames that are not there, are damaged or of another video,
// each by name; and what there is to do.
VideoSet load_video_set(const VideoSetOptions& options);

// The same, with every finding instead of the first few, and without frames where they are not decoded yet: what
// `tandem data check video DIR` shows. `set` is nothing where there is an error. Throws where there are no videos.
struct VideoSetCheck {
  DataFindings findings;
  std::optional<VideoSet> set;
  int64_t videos = 0, trials = 0, rows = 0;  // rows: annotated frames
};
VideoSetCheck check_video_folder(const VideoSetOptions& options);

}  // namespace tandem
