#include "video/video_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "base/errors.h"
#include "base/file_system.h"
#include "base/printable.h"
#include "base/sha256.h"
#include "base/shell_word.h"
#include "market/csv_rows.h"
#include "video/annotations.h"
#include "video/damaged_frames.h"
#include "video/frames_of_video.h"
#include "video/pose.h"
#include "video/trial_places.h"
#include "video/video_folder.h"

namespace tandem {

namespace fs = std::filesystem;

class VideoSetReader {
 public:
  // Without `needs_frames`, videos that are not decoded yet are a warning.
  VideoSetReader(const VideoSetOptions& options, bool needs_frames)
      : options_(options),
        needs_frames_(needs_frames),
        folder_(read_video_folder(options.folder, options.cache)),
        findings_(folder_.findings) {
    set_.height_ = options.height;
    set_.width_ = options.width;
    read_classes();
    read_animals();
    for (const VideoFiles& files : folder_.videos)
      if (!files.annotations.empty()) read_video(files);
    note_unannotated();
    if (set_.trials_.empty() && findings_.errors() == 0 && without_frames_ == 0)
      throw ConfigError(fmt::format("no annotated video in {}", printable(options.folder.string())),
                        "a video <name>.mp4 needs prediction_<name>_<trial>.csv, which says what it shows",
                        "bring the annotations, or look at the names: `tandem data check video` lists the files");
  }

  VideoSetCheck check() {
    VideoSetCheck result{.findings = findings_, .videos = videos_, .trials = trials_, .rows = rows_};
    if (findings_.errors() == 0 && without_frames_ == 0) result.set = finish();
    return result;
  }

  VideoSet finish() {
    refuse_video_errors(findings_, options_.folder);
    set_.findings_ = findings_;
    make_digest();
    return std::move(set_);
  }

 private:
  std::string shown(const fs::path& path) const { return path.lexically_relative(options_.folder).string(); }

  void read_classes() {
    set_.classes_ = ClassTable::mouse(options_.merge_withdraw);
    if (folder_.classes.empty()) return;
    const FileBytes bytes = read_whole_file(FileSystem::real(), folder_.classes, 1 << 20);
    set_.classes_ = ClassTable::read(bytes.text(), shown(folder_.classes), findings_);
    usable_classes_ = set_.classes_.size() >= 2;
  }

  // animals.csv: which videos are of one animal, where their names do not tell.
  void read_animals() {
    if (folder_.animals.empty()) return;
    static const MarketColumn columns[] = {{"video"}, {"animal"}};
    const std::string file = shown(folder_.animals);
    const FileBytes bytes = read_whole_file(FileSystem::real(), folder_.animals, 1 << 24);
    if (DataFindings none; !read_csv(bytes.text(), file, columns, none, [](int64_t, auto) {})) {
      findings_.warning("unknown", file, 0, "it has no columns video and animal: left out");
      return;
    }
    read_csv(bytes.text(), file, columns, findings_, [&](int64_t line, std::span<const std::string_view> fields) {
      if (fields[0].empty() || fields[1].empty())
        findings_.error("animal", file, line, "a video and its animal have names");
      else if (!animals_.emplace(fields[0], fields[1]).second)
        findings_.error("animal", file, line, fmt::format("\"{}\" stands there twice", printable(fields[0])));
    });
    set_.animals_named_ = true;
  }

  std::string animal_of(const std::string& video) {
    if (set_.animals_named_) {
      const auto named = animals_.find(video);
      if (named != animals_.end()) return named->second;
      findings_.error("animal", shown(folder_.animals), 0, fmt::format("it has no row for {}", printable(video)));
      return video;
    }
    const std::string& separator = options_.animal_separator;
    const size_t end = separator.empty() ? std::string::npos : video.find(separator);
    return video.substr(0, end == 0 ? std::string::npos : end);
  }

  // The frames of a video, if they can be had and are its own.
  std::optional<FrameFile> frames_of(const VideoFiles& files) {
    try {
      std::optional<FrameFile> frames = open_frames_of(files, folder_.cache, options_.height, options_.width);
      if (!frames) {
        ++without_frames_;
        findings_.add(
            needs_frames_ ? FindingLevel::kError : FindingLevel::kWarning, "no-frames",
            files.video.empty() ? files.name : shown(files.video), 0,
            fmt::format("not decoded yet at {} x {}: run `tandem data prepare video {} --size {}`", options_.height,
                        options_.width, shell_word(options_.folder.string()),
                        options_.height == options_.width ? fmt::format("{}", options_.height)
                                                          : fmt::format("{}x{}", options_.height, options_.width)));
        return frames;
      }
      if (options_.verify) frames->verify();
      const VideoSource& source = frames->source();
      if (!source.note.empty()) findings_.warning("damaged", source.name, 0, source.note);
      if (source.variable_rate) findings_.warning("variable-rate", source.name, 0, kVariableRateWords);
      if (source.rotation != 0) findings_.warning("rotation", source.name, 0, rotation_words(source.rotation));
      return frames;
    } catch (const DamagedFrames& damage) {
      findings_.error("frames", files.name, 0, fmt::format("{}: {}", damage.what(), damage.why()));
      return std::nullopt;
    }
  }

  void read_video(const VideoFiles& files) {
    ++videos_;
    std::optional<FrameFile> frames = frames_of(files);
    const int64_t length = frames ? frames->frames() : -1;
    TrialPlaces places(options_.accept_gaps, findings_);
    std::vector<VideoTrial> trials;
    for (const AnnotationFile& one : files.annotations) read_trial(one, length, places, trials);
    if (!frames) return;
    if (places.end() < length) unannotated_.emplace_back(files.name, length - places.end());
    // Poses of a video that is left out are left out too: those of the next one stand where its frames do.
    if (trials.empty() || !read_poses(files, length)) return;  // an error, or a warning for each trial, was noted
    const auto number = static_cast<int32_t>(set_.videos_.size());
    for (VideoTrial& trial : trials) {
      trial.video = number;
      trial.first_frame += set_.frames_;
      set_.trials_.push_back(std::move(trial));
    }
    set_.generated_ = set_.generated_ || frames->source().generated;
    set_.videos_.push_back({files.name, animal_of(files.name), set_.frames_, std::move(*frames)});
    set_.frames_ += length;
  }

  // `length`: of the video; -1: not known.
  void read_trial(const AnnotationFile& one, int64_t length, TrialPlaces& places, std::vector<VideoTrial>& trials) {
    ++trials_;
    const std::string file = shown(one.path);
    if (!usable_classes_) return;
    constexpr uint64_t kMostBytes = uint64_t{1} << 28;
    const FileBytes bytes = read_whole_file(FileSystem::real(), one.path, kMostBytes);
    Annotation read = read_annotation(bytes.text(), file, set_.classes_, options_.accept_gaps, findings_);
    rows_ += static_cast<int64_t>(read.classes.size());
    VideoTrial trial{.number = one.trial, .classes = std::move(read.classes), .file = file};
    trial.first_frame = places.place(one.trial, file, read.first_number, trial.frames());
    if (length >= 0 && trial.first_frame + trial.frames() > length) {
      const int64_t kept = std::max<int64_t>(0, length - trial.first_frame);
      if (kept < trial.frames())
        findings_.warning("beyond", file, read.lines[static_cast<size_t>(kept)],
                          fmt::format("the video ends after {} frames: {} rows are left out{}", length,
                                      trial.frames() - kept, kept == 0 ? ", the whole trial" : ""));
      trial.classes.resize(static_cast<size_t>(kept));
    }
    if (trial.frames() > 0) trials.push_back(std::move(trial));
  }

  // Appends the video's poses to the set's. False: an error was noted.
  bool read_poses(const VideoFiles& files, int64_t length) {
    if (!options_.poses) return true;
    if (files.pose.empty()) {
      findings_.error("pose", files.name, 0, "no DeepLabCut file <video name>DLC....csv, and poses are asked for");
      return false;
    }
    const int64_t before = findings_.errors();
    const FileBytes bytes = read_whole_file(FileSystem::real(), files.pose, uint64_t{1} << 31);
    std::vector<float> poses = read_pose(bytes.text(), shown(files.pose), findings_);
    if (findings_.errors() > before) return false;
    const int64_t rows = static_cast<int64_t>(poses.size()) / kPoseFeatures;
    if (rows < length) {
      findings_.error("pose", shown(files.pose), 0, fmt::format("{} rows for {} frames", rows, length));
      return false;
    }
    if (rows > length)
      findings_.warning("pose", shown(files.pose), 0,
                        fmt::format("{} rows for {} frames: the last ones are left out", rows, length));
    set_.poses_.insert(set_.poses_.end(), poses.begin(), poses.begin() + length * kPoseFeatures);
    return true;
  }

  // Usual, a few frames at the end: one line for all videos. Many may be a trial that is missing.
  void note_unannotated() {
    if (unannotated_.empty()) return;
    constexpr size_t kShown = 3;
    int64_t all = 0;
    std::string some;
    for (size_t i = 0; i < unannotated_.size(); ++i) {
      const auto& [name, count] = unannotated_[i];
      all += count;
      if (i < kShown) some += fmt::format("{}{}: {}", some.empty() ? "" : ", ", printable(name), count);
    }
    findings_.warning(
        "uncovered", options_.folder.string(), 0,
        fmt::format("{} frames behind the last trial of {} video{} are not trained on ({}{})", all, unannotated_.size(),
                    unannotated_.size() == 1 ? "" : "s", some, unannotated_.size() > kShown ? " ..." : ""));
  }

  void make_digest() {
    Sha256 sum;
    sum.update(fmt::format("video set 1\n{} {}\n{}", set_.height_, set_.width_, set_.classes_.csv()));
    for (const SetVideo& video : set_.videos_)
      sum.update(
          fmt::format("video {} {} {}\n", video.name, video.frames.frames(), video.frames.source().frames_sha256));
    for (const VideoTrial& trial : set_.trials_) {
      sum.update(fmt::format("trial {} {} {} {}\n", trial.video, trial.number, trial.first_frame, trial.frames()));
      sum.update(std::as_bytes(std::span(trial.classes)));
    }
    sum.update(std::as_bytes(std::span(set_.poses_)));
    set_.digest_ = sum.hex();
  }

  const VideoSetOptions& options_;
  const bool needs_frames_;
  VideoFolder folder_;
  DataFindings findings_;
  VideoSet set_;
  std::map<std::string, std::string, std::less<>> animals_;  // of videos, from animals.csv
  bool usable_classes_ = true;
  int64_t videos_ = 0, trials_ = 0, rows_ = 0, without_frames_ = 0;
  std::vector<std::pair<std::string, int64_t>> unannotated_;  // videos, and their frames behind the last trial
};

const uint8_t* VideoSet::frame(int64_t first) const {
  const auto after = std::ranges::upper_bound(videos_, first, {}, &SetVideo::first_frame);
  const SetVideo& video = *std::prev(after);
  return video.frames.frame(first - video.first_frame);
}

std::string VideoSet::description() const {
  return fmt::format("{} video{}, {} trial{}, {} frames of {} x {}, {} classes{}", videos_.size(),
                     videos_.size() == 1 ? "" : "s", trials_.size(), trials_.size() == 1 ? "" : "s", frames_, height_,
                     width_, classes_.size(), generated_ ? "; GENERATED, not recorded" : "");
}

VideoSet load_video_set(const VideoSetOptions& options) { return VideoSetReader(options, true).finish(); }

VideoSetCheck check_video_folder(const VideoSetOptions& options) { return VideoSetReader(options, false).check(); }

}  // namespace tandem
