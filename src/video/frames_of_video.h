// video/frames_of_video.h -- the file of frames that belongs to a video, and whether it is of the video as it is now.
#pragma once

#include <filesystem>
#include <optional>

#include "video/frame_file.h"
#include "video/video_folder.h"

namespace tandem {

inline constexpr const char* kVariableRateWords = "its frame rate varies: each frame counts once, whatever its time is";

// Its frames are those that it stores; a player would turn them.
std::string rotation_words(int32_t degrees);

// Size and time of the last change are compared first; where only the time differs, the content decides. What it said
// is noted beside the frames (<frames>.seen), so that it is read once for all who ask later.
bool is_of_this_video(const FrameFile& frames, const std::filesystem::path& video);
// The same without reading the content: false where nobody has done that yet.
bool is_known_as_of(const FrameFile& frames, const std::filesystem::path& video);

// Throws DamagedFrames if they were made from a file of this name in another folder, and that file is still there;
// unless they lie in this video's own folder, which was copied with them.
void refuse_video_of_elsewhere(const FrameFile& frames, const std::filesystem::path& video);

// Nothing: there is none of this size. Throws DamagedFrames where it is damaged, of another video (by name or folder)
// or of the video as it was. Without the video itself its frames are taken as they are, if they are the only ones of
// this name.
std::optional<FrameFile> open_frames_of(const VideoFiles& files, const std::filesystem::path& cache, int32_t height,
                                        int32_t width);

// Throws DamagedFrames if the frames say another name: they were renamed or copied.
void refuse_other_video(const FrameFile& frames, const std::string& video_file);

// What VideoSource::path says of a video; empty: its path is too long to be kept.
std::string path_of_source(const std::filesystem::path& video);

// SHA-256 of a file's bytes. Throws IoError.
std::string sha256_of_file(const std::filesystem::path& file);

struct FileStamp {
  int64_t bytes = 0, time_ns = 0;  // of the last change
  bool operator==(const FileStamp&) const = default;
};
FileStamp stamp_of_file(const std::filesystem::path& file);  // throws IoError

}  // namespace tandem
