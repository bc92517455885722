#include "recipes/video_data.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <unistd.h>

#include <optional>
#include <ranges>

#include "recipes/video_digest.h"
#include "telemetry/atomic_file.h"

namespace tandem {
namespace {

ClipRules clip_rules(const VideoSettings& settings) {
  return {.length = static_cast<int32_t>(settings.clip_frames), .stride = static_cast<int32_t>(settings.clip_stride)};
}

VideoSetOptions set_options(const VideoSettings& settings, bool verify) {
  const PrepareOptions where = prepare_options_of(settings);
  VideoSetOptions options;
  options.folder = where.folder;
  options.cache = where.cache;
  options.height = where.height;
  options.width = where.width;
  options.merge_withdraw = settings.merge_withdraw;
  options.accept_gaps = settings.accept_gaps;
  options.poses = settings.poses;
  options.animal_separator = settings.animal_separator;
  options.verify = verify;
  return options;
}

namespace fs = std::filesystem;

// Workers, and runs, make a set ready one after the other.
class ReadyLock {
 public:
  explicit ReadyLock(const fs::path& file) {
    fs::create_directories(file.parent_path());
    fd_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd_ < 0 || ::flock(fd_, LOCK_EX) != 0)
      throw IoError(fmt::format("cannot lock {}", file.string()), errno, "check that its folder may be written");
  }
  ~ReadyLock() { ::close(fd_); }
  ReadyLock(const ReadyLock&) = delete;
  ReadyLock& operator=(const ReadyLock&) = delete;

 private:
  int fd_ = -1;
};

fs::path beside(const PrepareOptions& options, const char* ending) {
  const fs::path& folder = options.cache.empty() ? options.folder : options.cache;
  return folder.parent_path() / (folder.filename().string() + ending);
}

// A generated set has a mark beside it once it was whole: one that was cut short is made again.
bool is_ready(const VideoSettings& settings, const PrepareOptions& options) {
  if (settings.data.empty() && !fs::exists(beside(options, ".whole"))) return false;
  return fs::is_directory(options.folder) && frames_are_ready(options);
}

std::string generated_words(const VideoSettings& settings) {
  return settings.data.empty() ? "GENERATED data: moving shapes. A score on them says nothing of real videos." : "";
}

void check_digest(const VideoSettings& settings, const VideoSet& set) {
  if (settings.data_digest.empty()) return;
  const std::string found = data_digest_of(settings, set);
  if (settings.data_digest == found) return;
  throw ConfigError(fmt::format("{} is not what this run began with", prepare_options_of(settings).folder.string()),
                    fmt::format("its digest is {}, that of the run's data was {}", found.substr(0, 16),
                                settings.data_digest.substr(0, 16)),
                    "put the files back, or begin a new run");
}

}  // namespace

double VideoData::mean_weight() const {
  double sum = 0;
  for (size_t c = 0; c < class_weights.size(); ++c)
    sum += training_counts.share(static_cast<int32_t>(c)) * class_weights[c];
  return sum;
}

GeneratedVideoOptions generated_videos_of(const VideoSettings& settings) {
  GeneratedVideoOptions options;
  options.videos = static_cast<int32_t>(settings.generated.videos);
  options.trials = static_cast<int32_t>(settings.generated.trials);
  options.frames = static_cast<int32_t>(settings.generated.frames);
  options.size = static_cast<int32_t>(settings.size);
  options.seed = static_cast<uint64_t>(settings.generated.seed);
  options.rare_share = settings.generated.rare_share;
  options.poses = settings.poses;
  return options;
}

PrepareOptions prepare_options_of(const VideoSettings& settings) {
  PrepareOptions options;
  options.folder =
      settings.data.empty() ? generated_folder(generated_videos_of(settings)) : std::filesystem::path(settings.data);
  if (!settings.data.empty()) options.cache = settings.cache;
  options.height = options.width = static_cast<int32_t>(settings.size);
  return options;
}

ReadyVideos make_ready(const VideoSettings& settings, const std::function<bool(const PrepareProgress&)>& progress) {
  PrepareOptions options = prepare_options_of(settings);
  options.to_train = true;
  if (!settings.data.empty() && !fs::is_directory(options.folder)) read_video_folder(options.folder);  // throws
  ReadyVideos ready{.generated = generated_words(settings)};
  if (is_ready(settings, options)) return ready;
  const ReadyLock lock(beside(options, ".lock"));
  if (is_ready(settings, options)) return ready;  // by another one, meanwhile
  const std::optional<VideoProgram> found = VideoProgram::find();
  const VideoProgram* const program = found ? &*found : nullptr;
  if (settings.data.empty())
    ready.generated = make_generated_set(generated_videos_of(settings), options.folder, program);
  if (!frames_are_ready(options)) {
    PrepareResult result = prepare_videos(options, program, progress);
    refuse_video_errors(result.findings, options.folder);
    ready.preparation = std::move(result.findings);
    if (result.stopped)
      throw ConfigError("the videos are not all decoded", "it was stopped", "the same command goes on where it ended");
  }
  if (settings.data.empty()) write_file_atomically(beside(options, ".whole"), "", Durability::kProcessDeath);
  return ready;
}

VideoData load_video_data(const VideoSettings& settings, bool verify) {
  VideoData data{.set = load_video_set(set_options(settings, verify))};
  check_digest(settings, data.set);
  data.class_names = data.set.classes().names();
  data.split = split_videos(data.set, {.by = read_split_by(settings.split),
                                       .validation_share = settings.validation_share,
                                       .seed = static_cast<uint64_t>(settings.split_seed)});
  data.training = clips_of(data.set, data.split.training, clip_rules(settings));
  data.validation = clips_of(data.set, data.split.validation, clip_rules(settings));
  data.training_counts = count_classes(data.set.classes(), data.training);
  data.validation_counts = count_classes(data.set.classes(), data.validation);
  data.warnings = check_class_examples(data.set.classes(), data.training_counts, data.validation_counts);
  if (std::string line = short_trials_text(data.set, clip_rules(settings)); !line.empty())
    data.warnings.push_back(std::move(line));
  data.warnings.insert(data.warnings.end(), data.split.leaks.begin(), data.split.leaks.end());
  data.class_weights = data.training_counts.weights();
  if (settings.class_weights == "none") data.class_weights.assign(data.class_weights.size(), 1);
  if (settings.poses) {
    std::vector<FrameRange> training;
    for (const int32_t trial : data.split.training) {
      const VideoTrial& one = data.set.trials()[static_cast<size_t>(trial)];
      training.push_back({one.first_frame, one.frames()});
    }
    data.poses = data.set.poses();
    data.pose_scaler = fit_pose_scaler(data.poses, training);
    data.pose_scaler.apply(data.poses);
  }
  return data;
}

void keep_for_prediction(const VideoData& data, VideoSettings& settings) {
  settings.class_names = fmt::format("{}", fmt::join(data.class_names, ","));  // no name has one (video/class_table.cc)
  settings.pose_scale = settings.poses ? data.pose_scaler.text() : "";
}

std::optional<VideoData> video_data_kept(const VideoSettings& settings) {
  if (settings.class_names.empty()) return std::nullopt;
  VideoData data;
  for (const auto name : std::views::split(settings.class_names, ','))
    data.class_names.emplace_back(name.begin(), name.end());
  if (settings.poses) {
    const std::optional<PoseScaler> scaler = PoseScaler::read(settings.pose_scale);
    if (!scaler) return std::nullopt;
    data.pose_scaler = *scaler;
  }
  data.class_weights.assign(data.class_names.size(), 1);
  data.training.resize(static_cast<size_t>(settings.shards));  // each shard has its part of the validation set
  data.validation = data.training;
  return data;
}

}  // namespace tandem
