// config/recipe_list.h -- the recipes a program knows, and what each adds to its commands. main() passes the list in;
// there is no global registry.
//
// An entry is all that the command line and its tools know of a recipe. Help and completion are made from the entries.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/run_settings.h"

namespace tandem {

class JobSet;           // jobs/job_set.h
struct Command;         // command/command.h
struct ResolvedRecipe;  // config/resolved_recipe.h

// A line of a command's help to copy, without the program's name, and what it does: "train web-test --quick".
using CommandExample = std::pair<std::string, std::string>;

// `value_name` of a flag that may stand alone, as true: `--enable-multi-leg`, `--enable-multi-leg false`.
inline constexpr std::string_view kSwitchValue = "[true|false]";

// A flag that sets a key of the recipe; help shows the key's present value beside it.
struct SettingFlag {
  enum class On { kTrainOnly, kSettings, kPlanToo };  // train alone; resume and config show too; and plan
  std::string names;                                  // "--lr,--learning-rate"
  std::string key, value_name, help;
  On on = On::kSettings;
};

// A flag of a recipe's own verb. Arguments::given() finds its value by the first long name: "episodes".
struct VerbFlag {
  enum class Kind { kSwitch, kText, kWhole };
  std::string names;  // "-o,--output"
  std::string value_name, help;
  Kind kind = Kind::kText;
};

// A command that a recipe brings: `tandem eval RUN`. Where several recipes have it, the run tells whose is meant (its
// word names one; none: the newest), and the command has the flags of all.
struct RecipeVerb {
  std::string name, summary;
  std::function<int(const Command&)> run;  // returns the exit code or throws Error
  std::vector<VerbFlag> flags = {};
  std::vector<CommandExample> examples = {};
  std::string subject = "run", subject_help = "id, start of an id, folder, or last";  // the word that may follow it
  int most_subjects = 1;                                                              // words that may follow it
  std::string usage = {};  // those words in the usage line, "<player> <player>"; empty: made of `subject`
};

// GiB that one worker needs; 0: not known, `doctor` says nothing of it.
struct MemoryNeed {
  double gpu_gib = 0, host_gib = 0;
};

// How `bench` measures it.
struct BenchPreset {
  std::vector<int64_t> batches = {};  // empty: half, whole and double of the recipe's own
  std::string trains = {};            // another recipe that stands for it; empty: itself
  bool among_all = true;              // also where no recipe is named
};

struct RecipeInfo {
  std::string name, summary;
  std::function<std::unique_ptr<RecipeSettings>()> settings;
  std::vector<std::pair<std::string, std::string>> quick = {};  // keys and values of `--quick`; empty: it has no such
  std::vector<SettingFlag> flags = {};                          // for keys of its own, spelled as its guide has them
  std::vector<RecipeVerb> verbs = {};
  std::vector<CommandExample> examples = {};  // for the help of other commands
  MemoryNeed need = {};
  // Bytes of a checkpoint under these settings, about; of a set: of one of each of its runs. Null: not known before it
  // runs. `train` of a set, `plan` and `doctor` tell what will be written.
  std::function<uint64_t(const RecipeSettings&)> checkpoint_bytes = {};
  std::string gpu_precision = {};  // where all devices are GPUs and nobody sets another; empty: the default everywhere
  BenchPreset bench = {};
  std::string baseline = {};               // Python that defines step() for `bench --baselines`; empty: it has none
  bool tries_machine = false;              // small: `doctor` trains it for a few steps
  std::shared_ptr<const JobSet> set = {};  // it is a set of jobs, or may be one (set_of()); null: one run
  std::function<int(const Command&)> train_from = {};  // `train --from RUN`; null: it can't
  // Before the settings of a new run are frozen, and before a run goes on in `run_dir`.
  std::function<void(const Command&, ResolvedRecipe&)> before_train = {};
  std::function<void(ResolvedRecipe&, const std::filesystem::path& run_dir)> before_resume = {};
};

// A recipe that later versions will have.
struct PlannedRecipe {
  std::string_view name, what;
};
std::span<const PlannedRecipe> planned_recipes();

// Throws ConfigError with the nearest name and the list; for a planned one it says that.
const RecipeInfo& find_recipe(const std::vector<RecipeInfo>& recipes, std::string_view name);

// {"-o", "--output"} of "-o,--output".
std::vector<std::string> names_of_flag(const std::string& names);

// Flags that every recipe has, those that `recipes` add, and last --exact. A flag that two of them add stands once,
// with the names of both. Throws std::logic_error where they set different keys by it.
std::vector<SettingFlag> setting_flags(const std::vector<RecipeInfo>& recipes);

}  // namespace tandem
