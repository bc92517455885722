#include "video/split.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/errors.h"
#include "base/printable.h"
#include "kernels/philox.h"

namespace tandem {
namespace {

constexpr uint32_t kSplitSite = 0x5350;  // of this stream of random numbers; a split is made once for all shards

std::string group_of(const VideoSet& set, size_t trial, SplitBy by) {
  const VideoTrial& one = set.trials()[trial];
  const SetVideo& video = set.videos()[static_cast<size_t>(one.video)];
  if (by == SplitBy::kAnimal) return video.animal;
  if (by == SplitBy::kVideo) return video.name;
  return fmt::format("{}\n{:010}", video.name, one.number);
}

// How many of the validation trials have a group that training sees too.
int64_t shared_trials(const VideoSet& set, const VideoSplit& split, SplitBy by) {
  std::set<std::string> seen;
  for (const int32_t trial : split.training) seen.insert(group_of(set, static_cast<size_t>(trial), by));
  return std::ranges::count_if(
      split.validation, [&](int32_t trial) { return seen.contains(group_of(set, static_cast<size_t>(trial), by)); });
}

// Videos with the very frames of one that training sees, under another name.
std::string copies_among(const VideoSet& set, const VideoSplit& split) {
  std::map<std::string, std::string> seen;  // frames, and the first video of training that has them
  const auto video_of = [&](int32_t trial) -> const SetVideo& {
    return set.videos()[static_cast<size_t>(set.trials()[static_cast<size_t>(trial)].video)];
  };
  for (const int32_t trial : split.training) {
    const SetVideo& video = video_of(trial);
    seen.emplace(video.frames.source().frames_sha256, video.name);
  }
  int64_t trials = 0;
  std::string first;
  for (const int32_t trial : split.validation) {
    const SetVideo& video = video_of(trial);
    const auto same = seen.find(video.frames.source().frames_sha256);
    if (same == seen.end() || same->second == video.name) continue;
    if (first.empty()) first = fmt::format("{} is {}", printable(video.name), printable(same->second));
    ++trials;
  }
  if (trials == 0) return "";
  return fmt::format(
      "{} of {} validation trials are of videos with the same frames as one that training sees ({}): the "
      "score tells less of new videos; take the copies away",
      trials, split.validation.size(), first);
}

bool of_one_animal(const VideoSet& set) {
  return set.videos().size() > 1 && std::ranges::all_of(set.videos(), [&](const SetVideo& video) {
           return video.animal == set.videos().front().animal;
         });
}

std::vector<std::string> leaks_of(const VideoSet& set, const VideoSplit& split) {
  std::vector<std::string> leaks;
  if (std::string line = copies_among(set, split); !line.empty()) leaks.push_back(std::move(line));
  for (const SplitBy by : {SplitBy::kVideo, SplitBy::kAnimal}) {
    if (by == SplitBy::kAnimal && of_one_animal(set)) {
      if (set.animals_named())  // their names would be a guess
        leaks.push_back(
            fmt::format("animals.csv says that all {} videos are of {}: the score tells less of new animals",
                        set.videos().size(), printable(set.videos().front().animal)));
      continue;
    }
    const int64_t shared = shared_trials(set, split, by);
    if (shared == 0) continue;
    leaks.push_back(
        fmt::format("{} of {} validation trials are of {}s that training sees too: the score tells less of "
                    "new {}s; split by {} to know",
                    shared, split.validation.size(), split_word(by), split_word(by), split_word(by)));
  }
  return leaks;
}

}  // namespace

SplitBy read_split_by(std::string_view word) {
  for (const SplitBy by : {SplitBy::kTrial, SplitBy::kVideo, SplitBy::kAnimal})
    if (word == split_word(by)) return by;
  throw ConfigError(fmt::format("a split by \"{}\"", printable(word)), "whole trials, videos or animals go to one part",
                    "choose trial, video or animal");
}

const char* split_word(SplitBy by) {
  return by == SplitBy::kTrial ? "trial" : by == SplitBy::kVideo ? "video" : "animal";
}

VideoSplit split_videos(const VideoSet& set, const SplitOptions& options) {
  if (!(options.validation_share > 0 && options.validation_share < 1))
    throw ConfigError(fmt::format("a validation share of {}", options.validation_share),
                      "both parts need something: it lies between 0 and 1", "use 0.2");
  std::map<std::string, std::vector<int32_t>> by_name;
  for (size_t i = 0; i < set.trials().size(); ++i)
    by_name[group_of(set, i, options.by)].push_back(static_cast<int32_t>(i));
  if (by_name.size() < 2)
    throw ConfigError(fmt::format("a split by {} of one {}", split_word(options.by), split_word(options.by)),
                      "whole groups train or judge, so there must be two",
                      options.by == SplitBy::kTrial   ? "bring more trials"
                      : options.by == SplitBy::kVideo ? "split by trial, or bring more videos"
                                                      : "tell animals apart by animals.csv (video,animal) or "
                                                        "split.animal_separator, or split by video");
  std::vector<const std::vector<int32_t>*> groups;
  for (const auto& [name, trials] : by_name) groups.push_back(&trials);
  const RandomKey key{.seed = options.seed, .site = kSplitSite};
  for (size_t i = groups.size() - 1; i > 0; --i)
    std::swap(groups[i], groups[random_below(key, i, static_cast<uint32_t>(i + 1))]);

  VideoSplit split;
  const auto wanted =
      std::max<int64_t>(1, std::llround(options.validation_share * static_cast<double>(set.trials().size())));
  for (size_t i = 0; i < groups.size(); ++i) {
    const bool judges = static_cast<int64_t>(split.validation.size()) < wanted && i + 1 < groups.size();
    auto& part = judges ? split.validation : split.training;
    part.insert(part.end(), groups[i]->begin(), groups[i]->end());
  }
  std::ranges::sort(split.training);
  std::ranges::sort(split.validation);
  split.leaks = leaks_of(set, split);
  return split;
}

}  // namespace tandem
