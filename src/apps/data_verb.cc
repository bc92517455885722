#include "apps/data_verb.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "apps/options/data_check.h"
#include "apps/video/prepare_verb.h"
#include "apps/video/video_check.h"
#include "base/errors.h"
#include "base/printable.h"
#include "command/command.h"

namespace tandem {
namespace {

struct DataAct {
  const char *word, *recipe;  // `data check options`
  const char* folder;         // what its folder holds
  int (*run)(const Command&);
  std::vector<std::string> flags;
};

const std::vector<DataAct>& data_acts() {
  static const std::vector<DataAct> acts = {{"check",
                                             "options",
                                             "bars are files of a folder, one for each symbol",
                                             check_options_data,
                                             {"symbols", "accept-jumps", "python"}},
                                            {"check",
                                             "video",
                                             "it holds Videos/ and Annotations/, or both kinds of file",
                                             check_video_data,
                                             {"frames", "size", "accept-gaps", "keep-labels", "poses"}},
                                            {"prepare",
                                             "video",
                                             "it holds Videos/, or the videos themselves",
                                             prepare_video_data,
                                             {"output", "size", "jobs", "accept-damaged"}}};
  return acts;
}

// "prepare video".
std::string acts_text(const std::string& word = "") {
  std::string text;
  for (const DataAct& act : data_acts())
    if (word.empty() || word == act.word)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", act.word, act.recipe);
  return text;
}

const DataAct& act_of(const Command& command) {
  const std::vector<std::string>& words = command.arguments.subjects;
  const std::string usage = fmt::format(
      "write `{} data check options DIR`, `{} data check video DIR` or "
      "`{} data prepare video DIR`",
      command.context.program, command.context.program, command.context.program);
  if (words.empty()) throw ConfigError("what about the data?", "`data` has: " + acts_text(), usage);
  const auto has_word = [&](const DataAct& act) { return words[0] == act.word; };
  if (std::ranges::none_of(data_acts(), has_word))
    throw ConfigError(fmt::format("`data` has no command \"{}\"", printable(words[0])), "it has: " + acts_text(),
                      usage);
  if (words.size() < 2) throw ConfigError("data of which recipe?", "there are: " + acts_text(words[0]), usage);
  for (const DataAct& act : data_acts()) {
    if (!has_word(act) || words[1] != act.recipe) continue;
    if (words.size() < 3 || words[2].empty()) throw ConfigError("which folder?", act.folder, usage);
    return act;
  }
  throw ConfigError(fmt::format("there is no data {} for \"{}\"", words[0], printable(words[1])),
                    "there are: " + acts_text(words[0]), usage);
}

int run_data(const Command& command) {
  const DataAct& act = act_of(command);
  for (const auto& [flag, value] : command.arguments.verb_flags)
    if (std::ranges::count(act.flags, flag) == 0)
      throw ConfigError(fmt::format("`data {} {}` has no flag --{}", act.word, act.recipe, flag),
                        "it is of another command of `data`", "leave it out");
  return act.run(command);
}

}  // namespace

RecipeVerb data_verb() {
  RecipeVerb verb{"data", "looks at files of data before a training, and decodes videos once", run_data};
  verb.subject = "words";
  verb.subject_help = "check options, check video or prepare video, and the folder";
  verb.most_subjects = 3;
  using Kind = VerbFlag::Kind;
  verb.flags = {{"--symbols", "list", "options: those to look at, separated by commas", Kind::kText},
                {"--accept-jumps", "", "options: what looks like a split is a warning", Kind::kSwitch},
                {"--python", "file", "options: Python with pyarrow, for Parquet", Kind::kText},
                {"-o,--output", "dir", "prepare video: where frames go [DIR/frames]", Kind::kText},
                {"--frames", "dir", "check video: where frames are [DIR/frames]", Kind::kText},
                {"--size", "pixels", "video: of frames, 256 or 192x256 (height first) [256]", Kind::kText},
                {"--jobs", "n", "prepare video: so many at the same time [all cores]", Kind::kWhole},
                {"--accept-damaged", "", "prepare video: what came of a damaged one is kept", Kind::kSwitch},
                {"--accept-gaps", "", "check video: frames without a row or an action are warnings", Kind::kSwitch},
                {"--keep-labels", "", "check video: guard and flinch stay classes of their own", Kind::kSwitch},
                {"--poses", "", "check video: DeepLabCut files are needed too", Kind::kSwitch}};
  verb.examples = {{"data check options prices", "daily bars and option chains, every fault by file and line"},
                   {"data check options prices --json", "the same for scripts; exit code 2 if there is an error"},
                   {"data prepare video mice", "decodes each video of a folder once, for training"},
                   {"data check video mice", "videos and annotations: faults by file and line, classes, parts"}};
  return verb;
}

}  // namespace tandem
