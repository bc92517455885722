#include "apps/video/video_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/video/findings_json.h"
#include "apps/video/frame_size.h"
#include "base/errors.h"
#include "base/printable.h"
#include "command/command.h"
#include "video/class_counts.h"
#include "video/clip_set.h"
#include "video/split.h"
#include "video/video_set.h"

namespace tandem {
namespace {

// How training would divide them, by video and with the usual seed; words where it can't.
struct UsualSplit {
  std::optional<VideoSplit> split;
  std::optional<ClassCounts> training;
  std::vector<std::string> words;
  bool refused = false;
};

bool names_tell_one_animal(const VideoSet& set) {
  return !set.animals_named() && set.videos().size() > 1 &&
         std::ranges::all_of(set.videos(),
                             [&](const SetVideo& video) { return video.animal == set.videos().front().animal; });
}

UsualSplit usual_split(const VideoSet& set) {
  UsualSplit usual;
  try {
    const VideoSplit& split = usual.split.emplace(split_videos(set, {}));
    usual.words.push_back(fmt::format("split by video, seed 42: {} trials train, {} judge", split.training.size(),
                                      split.validation.size()));
    if (std::string line = short_trials_text(set); !line.empty()) usual.words.push_back(std::move(line));
    for (const std::string& leak : split.leaks) usual.words.push_back(leak);
    if (names_tell_one_animal(set))
      usual.words.push_back(
          fmt::format("by their names all {} videos are of one animal, {}: if they are not, write animals.csv "
                      "(video,animal) or set split.animal_separator before a split by animal",
                      set.videos().size(), printable(set.videos().front().animal)));
    usual.training = count_classes(set.classes(), clips_of(set, split.training));
    const ClassCounts validation = count_classes(set.classes(), clips_of(set, split.validation));
    for (std::string& word : check_class_examples(set.classes(), *usual.training, validation))
      usual.words.push_back(std::move(word));
    SplitOptions by_trial;
    by_trial.by = SplitBy::kTrial;
    for (const std::string& leak : split_videos(set, by_trial).leaks)
      if (std::ranges::count(split.leaks, leak) == 0) usual.words.push_back("a split by trial would leak: " + leak);
  } catch (const ConfigError& error) {
    usual.refused = true;
    usual.words.push_back(fmt::format("{}: {}; {}", error.what(), error.why(), error.todo()));
  }
  return usual;
}

nlohmann::json check_json(const VideoSetCheck& check, const UsualSplit& usual, const std::string& folder) {
  nlohmann::json object{{"folder", printable(folder)},
                        {"recipe", "video"},
                        {"videos", check.videos},
                        {"trials", check.trials},
                        {"rows", check.rows},
                        {"errors", check.findings.errors()},
                        {"warnings", check.findings.warnings()},
                        {"findings", findings_json(check.findings)},
                        {"usable", check.set.has_value()}};
  if (!check.set) return object;
  object["frames"] = check.set->frames();
  object["digest"] = check.set->digest();
  object["split"] = usual.words;
  object["usual_split_trains"] = !usual.refused;
  if (usual.split) {
    object["validation_trials"] = nlohmann::json::array();
    for (const int32_t number : usual.split->validation) {
      const VideoTrial& trial = check.set->trials()[static_cast<size_t>(number)];
      object["validation_trials"].push_back(
          {{"video", printable(check.set->videos()[static_cast<size_t>(trial.video)].name)}, {"trial", trial.number}});
    }
  }
  if (!usual.training) return object;
  const std::vector<double> weights = usual.training->weights();
  for (int32_t i = 0; i < check.set->classes().size(); ++i)
    object["classes"].push_back({{"name", check.set->classes().names()[static_cast<size_t>(i)]},
                                 {"clips", usual.training->clips[static_cast<size_t>(i)]},
                                 {"share", usual.training->share(i)},
                                 {"weight", weights[static_cast<size_t>(i)]}});
  return object;
}

}  // namespace

int check_video_data(const Command& command) {
  const std::string& folder = command.arguments.subjects[2];
  const FrameSize size = read_frame_size(command.arguments.text("size", "256"));
  const VideoSetCheck check = check_video_folder({.folder = folder,
                                                  .cache = command.arguments.text("frames"),
                                                  .height = size.height,
                                                  .width = size.width,
                                                  .merge_withdraw = !command.arguments.has("keep-labels"),
                                                  .accept_gaps = command.arguments.has("accept-gaps"),
                                                  .poses = command.arguments.has("poses")});
  const int64_t errors = check.findings.errors(), warnings = check.findings.warnings();
  const UsualSplit usual = check.set ? usual_split(*check.set) : UsualSplit{};
  if (command.output.json()) {
    command.output.object(check_json(check, usual, folder));
    return errors > 0 ? static_cast<int>(ExitCode::kUsage) : 0;
  }
  command.output.data(check.findings.render());
  command.output.say(check.set ? check.set->description()
                               : fmt::format("{} annotated videos, {} trials, {} annotated frames", check.videos,
                                             check.trials, check.rows));
  if (usual.training) command.output.say(class_table_text(check.set->classes(), *usual.training));
  for (const std::string& word : usual.words) command.output.say(word);
  if (errors > 0)
    throw ConfigError(fmt::format("{} error{} in {}", errors, errors == 1 ? "" : "s", printable(folder)),
                      "training refuses data with an error, and never mends it by itself",
                      "correct the lines above; what is a warning may stay");
  command.output.say(!check.set      ? "usable once its videos are decoded"
                     : usual.refused ? "usable with another split than the usual one"
                     : warnings > 0  ? fmt::format("usable, with {} warning{}", warnings, warnings == 1 ? "" : "s")
                                     : "usable");
  return 0;
}

}  // namespace tandem
