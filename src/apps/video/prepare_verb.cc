#include "apps/video/prepare_verb.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "apps/video/decoding_bar.h"
#include "apps/video/findings_json.h"
#include "apps/video/frame_size.h"
#include "base/errors.h"
#include "base/printable.h"
#include "command/command.h"

namespace tandem {
namespace {

nlohmann::json preparation_json(const PrepareResult& result, const std::string& folder, const FrameSize& size) {
  nlohmann::json videos = nlohmann::json::array();
  for (const PreparedVideo& video : result.videos)
    videos.push_back({{"name", printable(video.name)},
                      {"outcome", video.outcome},
                      {"frames", video.frames},
                      {"file", printable(video.file.string())}});
  return {{"folder", printable(folder)},
          {"recipe", "video"},
          {"height", size.height},
          {"width", size.width},
          {"videos", videos},
          {"decoded", result.decoded},
          {"frames", result.frames},
          {"bytes", result.bytes},
          {"seconds", result.seconds},
          {"errors", result.findings.errors()},
          {"warnings", result.findings.warnings()},
          {"findings", findings_json(result.findings)}};
}

}  // namespace

PrepareResult prepare_with_bar(const Command& command, const PrepareOptions& options) {
  const std::optional<VideoProgram> program = VideoProgram::find();
  DecodingBar bar(command.output);
  return prepare_videos(options, program ? &*program : nullptr, [&bar](const PrepareProgress& progress) {
    bar.show(progress);
    return true;
  });
}

int prepare_video_data(const Command& command) {
  const std::string& folder = command.arguments.subjects[2];
  const FrameSize size = read_frame_size(command.arguments.text("size", "256"));
  const int64_t jobs = command.arguments.whole("jobs", 0);
  if (jobs < 0 || jobs > 1024)
    throw ConfigError(fmt::format("--jobs {}", jobs), "so many videos can't be decoded at the same time",
                      "leave it out");
  const PrepareResult result = prepare_with_bar(command, {.folder = folder,
                                                          .cache = command.arguments.text("output"),
                                                          .height = size.height,
                                                          .width = size.width,
                                                          .jobs = static_cast<int32_t>(jobs),
                                                          .accept_damaged = command.arguments.has("accept-damaged")});
  const int64_t errors = result.findings.errors();
  if (command.output.json()) {
    command.output.object(preparation_json(result, folder, size));
    return errors > 0 ? static_cast<int>(ExitCode::kUsage) : 0;
  }
  for (const PreparedVideo& video : result.videos)
    command.output.data(fmt::format("{:<12} {:>8} frames  {}\n", video.outcome, video.frames, printable(video.name)));
  command.output.data(result.findings.render());
  command.output.say(fmt::format("{} frames of {} x {}, {:.1f} MB; {} decoded in {:.1f} s", result.frames, size.height,
                                 size.width, static_cast<double>(result.bytes) / 1e6, result.decoded, result.seconds));
  if (errors > 0)
    throw ConfigError(fmt::format("{} error{} in {}", errors, errors == 1 ? "" : "s", printable(folder)),
                      "the lines above name each; the other videos are ready",
                      "mend or take away what they name, and run it again: what is ready stays");
  return 0;
}

}  // namespace tandem
