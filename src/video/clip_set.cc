#include "video/clip_set.h"

#include <fmt/format.h>

#include "base/errors.h"
#include "base/printable.h"

namespace tandem {

std::vector<Clip> clips_of(const VideoSet& set, std::span<const int32_t> trials, const ClipRules& rules) {
  if (rules.length < 1 || rules.length % 2 == 0 || rules.stride < 1)
    throw ConfigError(fmt::format("clips of {} frames, every {}", rules.length, rules.stride),
                      "a clip has the label of its centre frame, so its length is odd; the stride is 1 or more",
                      "use 17 and 1");
  std::vector<Clip> clips;
  for (const int32_t number : trials) {
    const VideoTrial& trial = set.trials()[static_cast<size_t>(number)];
    for (int64_t first = 0; first + rules.length <= trial.frames(); first += rules.stride) {
      const int16_t label = trial.classes[static_cast<size_t>(first + rules.length / 2)];
      if (label != kNoLabel) clips.push_back({trial.first_frame + first, number, label});
    }
  }
  if (clips.empty())
    throw ConfigError(fmt::format("no clip of {} frames", rules.length),
                      fmt::format("a clip lies inside one trial, and its centre has a label: none of {} trial{} is so "
                                  "long and has one there",
                                  trials.size(), trials.size() == 1 ? "" : "s"),
                      "use shorter clips, or longer trials");
  return clips;
}

std::string short_trials_text(const VideoSet& set, const ClipRules& rules) {
  constexpr int64_t kShown = 3;
  int64_t count = 0;
  std::string some;
  for (const VideoTrial& trial : set.trials()) {
    if (trial.frames() >= rules.length) continue;
    if (count++ < kShown)
      some += fmt::format("{}{}: {} frames", some.empty() ? "" : ", ", printable(trial.file), trial.frames());
  }
  if (count == 0) return "";
  return fmt::format("{} of {} trials {} shorter than a clip of {} frames and {} none ({}{})", count,
                     set.trials().size(), count == 1 ? "is" : "are", rules.length, count == 1 ? "has" : "have", some,
                     count > kShown ? " ..." : "");
}

std::vector<ClipStretch> stretches_of(std::span<const Clip> clips, int32_t stride) {
  std::vector<ClipStretch> stretches;
  for (size_t i = 0; i < clips.size(); ++i) {
    const bool goes_on =
        i > 0 && clips[i].trial == clips[i - 1].trial && clips[i].first_frame == clips[i - 1].first_frame + stride;
    if (!goes_on) stretches.push_back({i, i});
    stretches.back().end = i + 1;
  }
  return stretches;
}

}  // namespace tandem
