// video/frames_of_video.h -- the file of frames that belongs to a video, and whether it is of the video as it is now.
#pragma once

#include <filesystem>
#include <optional>

#include "video/frame_file.h"
#include "video/video_folder.h"

namespace tandem {

// Size and time of the last change are compared first; where only the time differs, the content decides.
bool is_of_this_video(const VideoSource& source, const std::filesystem::path& video);

// Nothing: there is none of this size. Throws DamagedFrames where it is damaged, of another video (by name) or of the
// video as it was. Without the video itself its frames are taken as they are.
std::optional<FrameFile> open_frames_of(const VideoFiles& files, const std::filesystem::path& cache, int32_t height,
                                        int32_t width);

// Throws DamagedFrames if the frames say another name: they were renamed or copied.
void refuse_other_video(const FrameFile& frames, const std::string& video_file);

// SHA-256 of a file's bytes. Throws IoError.
std::string sha256_of_file(const std::filesystem::path& file);

struct FileStamp {
  int64_t bytes = 0, time_ns = 0;  // of the last change
};
FileStamp stamp_of_file(const std::filesystem::path& file);  // throws IoError

}  // namespace tandem
