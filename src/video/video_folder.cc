#include "video/video_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/errors.h"
#include "base/file_system.h"
#include "base/plain_file.h"
#include "base/printable.h"
#include "base/shell_word.h"
#include "video/annotations.h"
#include "video/frame_file.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr std::array kVideoEndings = {".mp4", ".m4v", ".mov", ".avi",  ".mkv", ".webm", ".mpg", ".mpeg",
                                      ".ts",  ".wmv", ".flv", ".h264", ".ogv", ".mxf",  ".gif", ".y4m"};

std::string lower_ending(const std::string& file) {
  std::string ending = fs::path(file).extension().string();
  for (char& c : ending)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return ending;
}

bool is_video_name(const std::string& file) {
  return std::ranges::find(kVideoEndings, lower_ending(file)) != kVideoEndings.end();
}

class FolderReader {
 public:
  explicit FolderReader(VideoFolder& out) : out_(out) {}

  void read() {
    const std::vector<std::string> here = names_in(out_.folder);
    const bool has_videos = is_folder(out_.folder / "Videos");
    for (const char* part : {"Videos", "Annotations", "Poses"})
      if (is_folder(out_.folder / part)) take_all(fs::path(part), names_in(out_.folder / part), false);
    take_all({}, here, has_videos);
    read_cache();
    for (auto& [name, files] : by_name_) check(files);
  }

 private:
  struct Stray {
    fs::path path;
    AnnotationName name;
  };

  std::vector<std::string> names_in(const fs::path& folder) const { return FileSystem::real().list(folder); }
  bool is_folder(const fs::path& path) const { return fs::is_directory(fs::symlink_status(path)); }
  std::string shown(const fs::path& path) const { return path.lexically_relative(out_.folder).string(); }

  void take_all(const fs::path& part, const std::vector<std::string>& names, bool no_videos) {
    for (const std::string& name : names) take(out_.folder / part / name, name, no_videos);
  }

  void take(const fs::path& path, const std::string& name, bool no_videos) {
    if (name.starts_with('.')) return;  // what a system keeps beside files, or a writer that was killed left
    const bool video = !no_videos && is_video_name(name);
    const std::string ending = lower_ending(name);
    if (!video && ending != ".csv") return;
    if (const std::string other = not_a_file(path); !other.empty()) {
      if (other != "a folder") out_.findings.warning("link", shown(path), 0, other + ", which is left out");
      return;
    }
    if (video) {
      VideoFiles& files = named(path.stem().string());
      if (!files.video.empty())
        out_.findings.error("name", shown(path), 0,
                            fmt::format("{} has the same name, so annotations could be of either", shown(files.video)));
      else
        files.video = path;
    } else if (name == "classes.csv") {
      out_.classes = path;
    } else if (name == "animals.csv") {
      out_.animals = path;
    } else if (const std::optional<AnnotationName> of = read_annotation_name(name)) {
      named(of->video).annotations.push_back({of->trial, path});
    } else if (const size_t mark = name.find("DLC"); mark != name.npos && mark > 0) {
      std::string video_name = name.substr(0, mark);
      if (video_name.ends_with('_')) video_name.pop_back();
      take_pose(video_name, path);
    } else {
      out_.findings.warning("unknown", shown(path), 0,
                            "neither prediction_<video>_<trial>.csv nor a DeepLabCut file: left out");
    }
  }

  void take_pose(const std::string& video_name, const fs::path& path) {
    VideoFiles& files = named(video_name);
    if (files.pose.empty())
      files.pose = path;
    else
      out_.findings.error("pose", shown(path), 0, fmt::format("{} is of the same video", shown(files.pose)));
  }

  // Frames without their video serve too: a machine that trains needs no videos.
  void read_cache() {
    if (!is_folder(out_.cache)) return;
    for (const std::string& name : names_in(out_.cache)) {
      if (!name.ends_with(FrameFile::kEnding) || name.starts_with('.')) continue;
      const std::string video = fs::path(fs::path(name).stem().stem()).stem().string();  // x.mp4.256x256.frames
      named(video).frames.push_back(out_.cache / name);
    }
  }

  VideoFiles& named(const std::string& name) {
    VideoFiles& files = by_name_[name];
    files.name = name;
    return files;
  }

  void check(VideoFiles& files) {
    std::ranges::sort(files.annotations, {}, &AnnotationFile::trial);
    for (size_t i = 1; i < files.annotations.size(); ++i)
      if (files.annotations[i].trial == files.annotations[i - 1].trial)
        out_.findings.error("trial", shown(files.annotations[i].path), 0,
                            fmt::format("{} is the same trial", shown(files.annotations[i - 1].path)));
    if (files.video.empty() && files.frames.empty()) {
      for (const AnnotationFile& one : files.annotations)
        out_.findings.error(
            "no-video", shown(one.path), 0,
            fmt::format("there is no video {}; bring it, or take this file away", printable(files.name)));
      if (!files.pose.empty())
        out_.findings.warning("no-video", shown(files.pose), 0,
                              fmt::format("no video {}: left out", printable(files.name)));
      return;
    }
    if (files.annotations.empty() && !files.video.empty())
      out_.findings.warning("no-annotation", shown(files.video), 0,
                            fmt::format("no prediction_{}_<trial>.csv: not trained on", printable(files.name)));
    out_.videos.push_back(std::move(files));
  }

  VideoFolder& out_;
  std::map<std::string, VideoFiles> by_name_;
};

}  // namespace

VideoFolder read_video_folder(const fs::path& folder, const fs::path& cache) {
  std::error_code error;
  if (!fs::is_directory(folder, error))
    throw ConfigError(fmt::format("there is no folder {}", printable(folder.string())),
                      error ? error.message() : "videos lie in a folder, with their annotations", "check the path");
  VideoFolder found;
  found.folder = folder;
  found.cache = cache.empty() ? folder / "frames" : cache;
  FolderReader(found).read();
  if (found.videos.empty() && found.findings.errors() == 0)
    throw ConfigError(fmt::format("no videos in {}", printable(folder.string())),
                      "neither it nor its folder Videos has a file that is named as a video (.mp4, .avi, .mkv ...)",
                      "name the folder that holds Videos/ and Annotations/, or videos and CSVs together");
  return found;
}

fs::path frame_file_path(const fs::path& cache, const std::string& video_file, int32_t height, int32_t width) {
  return cache / fmt::format("{}.{}x{}{}", video_file, height, width, FrameFile::kEnding);
}

void refuse_video_errors(const DataFindings& findings, const fs::path& folder) {
  if (findings.errors() == 0) return;
  constexpr int kShown = 3;
  std::string why;
  int shown = 0;
  for (const DataFinding& finding : findings.list()) {
    if (finding.level != FindingLevel::kError) continue;
    if (shown++ == kShown) break;
    why += fmt::format("{}{}: {}", why.empty() ? "" : "; ", finding.place(), finding.text);
  }
  if (findings.errors() > kShown) why += fmt::format("; and {} more", findings.errors() - kShown);
  throw ConfigError(
      fmt::format("the videos in {} {}", printable(folder.string()),
                  findings.errors() == 1 ? "have an error" : fmt::format("have {} errors", findings.errors())),
      why,
      fmt::format("see all with `tandem data check video {}`, and correct the files", shell_word(folder.string())));
}

}  // namespace tandem
