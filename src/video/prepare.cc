#include "video/prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "base/cores.h"
#include "base/errors.h"
#include "base/file_system.h"
#include "base/printable.h"
#include "video/damaged_frames.h"
#include "video/frame_file.h"
#include "video/frames_of_video.h"
#include "video/generated_videos.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr auto kProgressEvery = std::chrono::milliseconds(100);

fs::path cache_of(const PrepareOptions& options) {
  return options.cache.empty() ? options.folder / "frames" : options.cache;
}

// Nobody else fills this cache; what a killed one left is taken away.
OpenFile lock_cache(const fs::path& cache) {
  FileSystem& files = FileSystem::real();
  files.mkdir(cache);
  try {
    OpenFile lock(files, files.lock_dir(cache));
    for (const std::string& name : files.list(cache))
      if (name.starts_with(".tmp-")) files.remove_all(cache / name);
    return lock;
  } catch (const IoError& error) {
    if (error.error_number() != EWOULDBLOCK) throw;
    throw ConfigError(fmt::format("the frames in {} are being made", printable(cache.string())),
                      "another process is at work there", "wait for its end, or name another folder with --output");
  }
}

class Preparation {
 public:
  Preparation(const PrepareOptions& options, const VideoProgram* program)
      : options_(options), program_(program), cache_(cache_of(options)) {}

  PrepareResult run(const std::function<bool(const PrepareProgress&)>& progress) {
    const double start = monotonic_seconds();
    VideoFolder folder = read_video_folder(options_.folder, cache_);
    result_.findings = folder.findings;
    const OpenFile lock = lock_cache(cache_);
    generated_ = is_generated_folder(options_.folder);
    for (VideoFiles& files : folder.videos)
      if (!options_.to_train || !files.annotations.empty()) jobs_.push_back({.files = std::move(files)});
    counts_.videos = static_cast<int64_t>(jobs_.size());
    for (const auto act : {&Preparation::look_at, &Preparation::decode_job}) {
      all_jobs(act, progress);
      if (failure_) std::rethrow_exception(failure_);
    }
    collect();
    result_.stopped = stop_;
    result_.seconds = monotonic_seconds() - start;
    return std::move(result_);
  }

 private:
  struct Job {
    VideoFiles files;
    bool to_decode = false;
    PreparedVideo done;
    std::vector<DataFinding> findings;
  };

  // Each job by one of some threads; this one shows how it goes.
  void all_jobs(void (Preparation::*act)(Job&), const std::function<bool(const PrepareProgress&)>& progress) {
    const int threads = std::clamp<int>(options_.jobs > 0 ? options_.jobs : usable_cores(), 1,
                                        std::max<int>(1, static_cast<int>(jobs_.size())));
    std::atomic<size_t> next{0};
    int working = threads;
    std::condition_variable ended;
    std::vector<std::thread> workers;
    for (int i = 0; i < threads; ++i)
      workers.emplace_back([&] {
        for (size_t job; !stop_ && (job = next++) < jobs_.size();) attempt(act, jobs_[job]);
        const std::lock_guard lock(mutex_);
        --working;
        ended.notify_all();
      });
    {
      std::unique_lock lock(mutex_);
      while (working > 0) {
        ended.wait_for(lock, kProgressEvery);
        const PrepareProgress now = counts_;
        lock.unlock();
        if (progress && !progress(now)) stop_ = true;
        lock.lock();
      }
    }
    for (std::thread& worker : workers) worker.join();
  }

  void attempt(void (Preparation::*act)(Job&), Job& job) {
    try {
      (this->*act)(job);
    } catch (const ConfigError& error) {  // of this video; the others go on
      refuse_job(job, fmt::format("{}: {}", error.what(), error.why()));
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      stop_ = true;
    }
  }

  static void refuse_job(Job& job, std::string text) {
    job.to_decode = false;
    job.done.outcome = "failed";
    note(job, FindingLevel::kError, "video", std::move(text));
  }
  static void note(Job& job, FindingLevel level, const char* kind, std::string text) {
    job.findings.push_back({level, kind, job.done.name, 0, std::move(text)});
  }

  // Whether it must be decoded, and how long it is.
  void look_at(Job& job) {
    const VideoFiles& files = job.files;
    if (files.video.empty()) {
      job.done.name = files.name;
      std::optional<FrameFile> frames = open_frames_of(files, cache_, options_.height, options_.width);
      if (frames) frames->verify();
      take_result(job, frames, frames ? "frames alone" : "failed");
      if (!frames)
        note(job, FindingLevel::kError, "no-video",
             fmt::format("neither a video nor its frames of {} x {}", options_.height, options_.width));
      return;
    }
    job.done.name = files.video.filename().string();
    job.done.file = frame_file_path(cache_, job.done.name, options_.height, options_.width);
    if (std::optional<FrameFile> frames = usable_frames(job)) {
      take_result(job, frames, "unchanged");
      return;
    }
    if (!program_) {
      refuse_job(job,
                 "it is not decoded yet, and there is no tandem-video beside this program (TANDEM_FFMPEG=off): bring "
                 "the folder of its frames from a machine that has one");
      return;
    }
    const VideoFacts facts = program_->probe(files.video);
    if (facts.variable_rate) note(job, FindingLevel::kWarning, "variable-rate", kVariableRateWords);
    if (facts.rotation != 0) note(job, FindingLevel::kWarning, "rotation", rotation_words(facts.rotation));
    job.to_decode = true;
    const std::lock_guard lock(mutex_);
    counts_.frames += facts.frames;
  }

  // What is there, if it is whole and of the video as it is. Throws where it is another video's.
  std::optional<FrameFile> usable_frames(Job& job) {
    if (!FileSystem::real().exists(job.done.file)) return std::nullopt;
    std::optional<FrameFile> frames;
    try {
      frames = FrameFile::open(job.done.file);
    } catch (const DamagedFrames& damage) {
      note(job, FindingLevel::kWarning, "damaged", fmt::format("{}; they are made again", damage.why()));
      return std::nullopt;
    }
    refuse_other_video(*frames, job.done.name);
    if (!is_of_this_video(*frames, job.files.video)) {
      refuse_video_of_elsewhere(*frames, job.files.video);
      return std::nullopt;
    }
    if (!frames->source().note.empty() && !options_.accept_damaged && !options_.to_train)
      return std::nullopt;  // it is refused again, by its words
    try {
      frames->verify();
    } catch (const DamagedFrames& damage) {
      note(job, FindingLevel::kWarning, "damaged", fmt::format("{}; they are made again", damage.why()));
      return std::nullopt;
    }
    return frames;
  }

  static void take_result(Job& job, const std::optional<FrameFile>& frames, const char* outcome) {
    job.done.outcome = outcome;
    if (!frames) return;
    job.done.frames = frames->frames();
    job.done.file = frames->path();
  }

  void decode_job(Job& job) {
    if (job.to_decode) decode(job);
    const std::lock_guard lock(mutex_);
    if (!stop_) ++counts_.videos_done;
  }

  void decode(Job& job) {
    const fs::path& video = job.files.video;
    const FileStamp before = stamp_of_file(video);
    VideoSource source;
    source.name = job.done.name;
    source.path = path_of_source(video);
    source.bytes = before.bytes;
    source.time_ns = before.time_ns;
    source.sha256 = sha256_of_file(video);
    source.generated = generated_;
    FrameFileWriter writer(job.done.file, options_.height, options_.width);
    const DecodedVideo done =
        program_->decode(video, options_.height, options_.width, [&](std::span<const uint8_t> frame) {
          writer.add(frame);
          const std::lock_guard lock(mutex_);
          ++counts_.frames_done;
          return !stop_;
        });
    if (stop_) return;
    if (done.frames == 0) {
      refuse_job(job, done.trouble);
      return;
    }
    if (!done.trouble.empty() && !options_.accept_damaged) {
      refuse_job(job, fmt::format("{}; --accept-damaged keeps the {} frames that came", done.trouble, done.frames));
      return;
    }
    if (!done.trouble.empty()) note(job, FindingLevel::kWarning, "damaged", done.trouble);
    const FileStamp after = stamp_of_file(video);
    if (after != before) {
      refuse_job(job, "it changed while it was read");
      return;
    }
    source.note = done.trouble;
    source.scaling = done.facts.height == options_.height && done.facts.width == options_.width ? "none" : "area";
    source.height = done.facts.height;
    source.width = done.facts.width;
    source.frames_per_second = done.facts.frames_per_second;
    source.variable_rate = done.facts.variable_rate;
    source.rotation = done.facts.rotation;
    writer.finish(source);
    job.done.outcome = "decoded";
    job.done.frames = done.frames;
  }

  void collect() {
    for (Job& job : jobs_) {
      for (const DataFinding& one : job.findings)
        result_.findings.add(one.level, one.kind, one.file, one.line, one.text);
      if (job.done.outcome.empty()) continue;  // it was stopped before
      result_.frames += job.done.frames;
      result_.bytes += job.done.frames * options_.height * options_.width;
      result_.decoded += job.done.outcome == "decoded" ? 1 : 0;
      result_.videos.push_back(std::move(job.done));
    }
  }

  const PrepareOptions& options_;
  const VideoProgram* const program_;
  const fs::path cache_;
  bool generated_ = false;
  std::vector<Job> jobs_;
  std::mutex mutex_;  // of what follows
  PrepareProgress counts_;
  std::exception_ptr failure_;
  std::atomic<bool> stop_{false};
  PrepareResult result_;
};

}  // namespace

PrepareResult prepare_videos(const PrepareOptions& options, const VideoProgram* program,
                             const std::function<bool(const PrepareProgress&)>& progress) {
  constexpr int32_t kMostSide = 8192;
  if (options.height < 1 || options.width < 1 || options.height > kMostSide || options.width > kMostSide)
    throw ConfigError(fmt::format("frames of {} x {}", options.height, options.width),
                      fmt::format("a side has 1 to {} pixels", kMostSide), "use 256");
  return Preparation(options, program).run(progress);
}

bool frames_are_ready(const PrepareOptions& options) {
  const fs::path cache = cache_of(options);
  for (const VideoFiles& files : read_video_folder(options.folder, cache).videos) {
    if (files.video.empty() || files.annotations.empty()) continue;
    const fs::path file = frame_file_path(cache, files.video.filename().string(), options.height, options.width);
    if (!FileSystem::real().exists(file)) return false;
    try {
      if (!is_known_as_of(FrameFile::open(file), files.video)) return false;
    } catch (const DamagedFrames&) {
      return false;
    }
  }
  return true;
}

}  // namespace tandem
