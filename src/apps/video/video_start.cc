#include "apps/video/video_start.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "config/devices.h"
#include "recipes/video_data.h"
#include "recipes/video_digest.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr double kSayEverySeconds = 5;

std::vector<DeviceSpec> devices_of(const VideoSettings& settings, const Machine& machine) {
  return parse_devices(settings.devices, machine, 1024);
}

void absolute_folders(VideoSettings& settings) {
  for (std::string* folder : {&settings.data, &settings.cache})
    if (!folder->empty()) *folder = fs::absolute(*folder).lexically_normal().string();
}

// "262 (per device: ~87)", of the clips of a part.
std::string batches_text(size_t clips, const VideoSettings& settings, size_t devices) {
  const auto batch = static_cast<size_t>(settings.batch_size * (settings.shards_from_devices ? devices : 1));
  const size_t batches = (clips + batch - 1) / batch;
  return fmt::format("{} of {} (per device: ~{} of {})", batches, batch, batches, (batch + devices - 1) / devices);
}

void say_data(const Command& command, const VideoData& data, const VideoSettings& settings) {
  const Output& out = command.output;
  const std::string line(60, '=');
  out.say(fmt::format("Found {} unique videos with {} total trials: {}", data.set.videos().size(),
                      data.set.trials().size(), data.set.description()));
  out.say(fmt::format("Train trials: {}, Val trials: {} (split by {}, seed {})", data.split.training.size(),
                      data.split.validation.size(), settings.split, settings.split_seed));
  out.say(line + "\nClass Distribution and Weights\n" + line);
  std::string table = class_table_text(data.set.classes(), data.training_counts);
  if (table.ends_with('\n')) table.pop_back();
  out.say(table);
  if (settings.class_weights == "none") out.say("loss.class_weights=none: the loss uses none of these weights");
  out.say(line);
  const size_t devices = std::max<size_t>(1, devices_of(settings, command.context.machine).size());
  out.say("Train batches: " + batches_text(data.training.size(), settings, devices));
  out.say("Val batches: " + batches_text(data.validation.size(), settings, devices));
}

std::function<bool(const PrepareProgress&)> progress_on(const Command& command) {
  return [&command, last = monotonic_seconds()](const PrepareProgress& now) mutable {
    if (monotonic_seconds() - last < kSayEverySeconds) return true;
    last = monotonic_seconds();
    command.output.say(
        fmt::format("decoding: {} of {} videos, {} frames", now.videos_done, now.videos, now.frames_done));
    return true;
  };
}

}  // namespace

void take_videos(const Command& command, ResolvedRecipe& recipe) {
  auto& settings = dynamic_cast<VideoSettings&>(*recipe.settings);
  settings.check_sizes();
  devices_of(settings, command.context.machine);  // refuses those that are not there
  absolute_folders(settings);
  const ReadyVideos ready = make_ready(settings, progress_on(command));
  if (!ready.generated.empty()) command.output.warn(ready.generated);
  const VideoData data = load_video_data(settings, /*verify=*/true);
  // What preparing warned of is mostly a property of the data, and found again.
  std::vector<std::string> warnings = data.set.findings().warning_lines();
  for (std::string& line : ready.preparation.warning_lines())
    if (std::ranges::count(warnings, line) == 0) warnings.push_back(std::move(line));
  warnings.insert(warnings.end(), data.warnings.begin(), data.warnings.end());
  for (const std::string& warning : warnings) command.output.warn(warning);
  say_data(command, data, settings);
  settings.data_digest = data_digest_of(settings, data.set);
  keep_for_prediction(data, settings);
  for (const char* key : {"data_digest", "class_names", "pose_scale"})
    recipe.resolver->note_source(key, "the data at the start");
}

void keep_videos(ResolvedRecipe& recipe, const fs::path& /*run_dir*/) {
  auto& settings = dynamic_cast<VideoSettings&>(*recipe.settings);
  absolute_folders(settings);
  make_ready(settings);
  if (!settings.data_digest.empty()) load_video_data(settings, /*verify=*/true);
}

}  // namespace tandem
