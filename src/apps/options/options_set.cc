#include "apps/options/options_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/errors.h"
#include "base/file_system.h"
#include "command/start.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOptionsRecipe = "options";

// Multiply-adds of a sample's forward pass, then three times that for both passes. Jobs of a set differ in their data
// alone, so this only says how long the first of them may take.
double options_flops(const OptionsSettings& s) {
  const auto width = static_cast<double>(s.net.width), window = static_cast<double>(s.window);
  const double layer = window * (8 * width * width + 4 * width * width + 2 * window * width);
  const double input = window * static_cast<double>(kMarketFeatures + kOwnFeatures) * width;
  const double forward = 2 * (input + static_cast<double>(s.net.layers) * layer);
  const double playing = static_cast<double>(s.rollout_steps()) / static_cast<double>(s.updates_per_rollout());
  return forward * (3 * static_cast<double>(s.batch_size) + playing);
}

void check_options_set(const OptionsSettings& s) {
  if (s.shards_from_devices)
    throw ConfigError("a set of runs needs a number of shards", "its runs move between devices while they train",
                      "leave shards as it is, or give a number");
  if (s.validation.patience > 0)
    throw ConfigError("validation.patience with --walk-forward or --seeds",
                      "what is left of each run must be known to spread them over devices",
                      "leave it out: checkpoints/best of each run is its best model all the same");
  if (last_update(s) == 0)
    throw ConfigError("a set of runs needs --episodes or --steps",
                      "what is left of each run must be known to spread them over devices",
                      "give one of them, beside --max-time if you like");
  if (s.walk_forward == 0 && s.fold > s.folds) s.check();  // says so
}

// A run that is there keeps its settings, and takes what was given now.
void take_fold_settings(Resolver& resolver, const FoldJob& plan, const ResolvedRecipe& whole, const fs::path& toml) {
  std::error_code none;
  if (fs::exists(toml, none)) {
    const FileBytes text = read_whole_file(FileSystem::real(), toml, 1 << 20);
    resolver.apply_toml(text.text(), toml.string());
    resolver.take(*whole.resolver, "", 2);
  } else {
    resolver.take(*whole.resolver, "");
  }
  const auto& settings = dynamic_cast<const OptionsSettings&>(*whole.settings);
  const auto set = [&](const char* key, int64_t value) { resolver.set(key, std::to_string(value), kOptionsRecipe); };
  set("walk_forward", 0);
  set("seeds", 1);
  set("folds", plan.folds);
  set("fold", plan.fold);
  set("seed", plan.seed);
  set("steps", last_update(settings));
  set("episodes", 0);
  set("iterations", 0);
}

PreparedJob prepare_fold(const FoldJob& plan, const ResolvedRecipe& whole, const fs::path& dir) {
  PreparedJob one;
  one.job.name = plan.name();
  one.job.agent = plan.model();
  one.job.dir = dir / "agents" / one.job.name;
  const fs::path toml = one.job.dir / "recipe.toml";
  std::error_code none;
  one.is_new = !fs::exists(toml, none);
  one.settings = std::make_unique<OptionsSettings>();
  one.resolver = std::make_unique<Resolver>(*one.settings);
  take_fold_settings(*one.resolver, plan, whole, toml);
  const auto manifest = one.is_new ? std::nullopt : newest_manifest(one.job.dir / "checkpoints");
  settle_job(one, kOptionsRecipe, manifest ? &manifest->settings : nullptr);
  one.job.flops = options_flops(dynamic_cast<const OptionsSettings&>(*one.settings));
  return one;
}

// The best validation of a run, by its newest checkpoint.
double best_validation(const fs::path& run) {
  const auto manifest = newest_manifest(run / "checkpoints");
  if (!manifest) return kAbsent;
  const nlohmann::json validation = manifest->scalars.value("validation", nlohmann::json());
  const nlohmann::json best = validation.is_object() ? validation.value("best", nlohmann::json()) : nlohmann::json();
  return best.is_number() ? best.get<double>() : kAbsent;
}

class OptionsSet : public JobSet {
 public:
  std::string job_recipe() const override { return kOptionsRecipe; }

  bool asked_for(const RecipeSettings& settings) const override {
    return dynamic_cast<const OptionsSettings&>(settings).is_set();
  }

  PreparedSet prepare(ResolvedRecipe& recipe, const Machine& machine, const fs::path& dir, const SetKnown& /*known*/,
                      const Say& /*say*/) const override {
    const auto& settings = dynamic_cast<const OptionsSettings&>(*recipe.settings);
    check_options_set(settings);
    PreparedSet set;
    set.job_recipe = kOptionsRecipe;
    set.strategy = "folds";
    set.max_time = settings.max_time;
    set.devices = parse_devices(settings.devices, machine, 1024);
    for (const FoldJob& plan : fold_jobs(settings)) set.jobs.push_back(prepare_fold(plan, recipe, dir));
    number_kinds(set);
    return set;
  }

  PreparedSet prepare_at(ResolvedRecipe& recipe, const Machine& machine, const SetPlace& place) const override {
    const std::string before = std::exchange(recipe.settings->devices, place.devices);
    PreparedSet set = prepare(recipe, machine, "", place.known, [](const std::string&) {});
    recipe.settings->devices = before;
    return set;
  }

  bool judge(const std::vector<SetJob>& jobs, std::vector<JobStatus>& status) const override {
    bool all = true;
    for (size_t j = 0; j < jobs.size(); ++j) {
      try {
        status[j].score = best_validation(jobs[j].dir);
      } catch (const Error&) {  // no checkpoint of it can be read
        status[j].score = kAbsent;
      }
      all = all && status[j].state == JobStatus::State::kDone && status[j].score == status[j].score;
    }
    return all;
  }

  std::string score_words(bool judged) const override {
    return judged ? "score: the best validation of each run (checkpoints/best), 100 ln(growth); return: the same per "
                    "episode of training"
                  : "return: 100 ln(growth) per episode of training; a score is the best validation";
  }

  std::vector<CommandExample> next_commands(const std::string& run, const std::string& /*agent*/) const override {
    return {{fmt::format("eval {}", run), "all folds and seeds out of sample, beside the baselines"},
            {fmt::format("report {}", run), "the page again, after eval with its figures"}};
  }
};

}  // namespace

std::string FoldJob::model() const { return fmt::format("fold-{}", fold); }
std::string FoldJob::name() const { return fmt::format("fold-{}-seed-{}", fold, seed); }

std::vector<FoldJob> fold_jobs(const OptionsSettings& settings) {
  std::vector<FoldJob> jobs;
  const bool walks = settings.walk_forward > 0;
  const int64_t folds = walks ? settings.walk_forward : settings.folds;
  for (int64_t fold = walks ? 1 : settings.fold; fold <= (walks ? folds : settings.fold); ++fold)
    for (int64_t i = 0; i < settings.seeds; ++i) jobs.push_back({fold, folds, settings.seed + i});
  return jobs;
}

int64_t last_update(const OptionsSettings& settings) {
  int64_t last = settings.steps;
  const auto sooner = [&](int64_t updates) { last = last == 0 ? updates : std::min(last, updates); };
  if (settings.episodes > 0) sooner(settings.updates_of_episodes());
  if (settings.iterations > 0) sooner(settings.iterations * settings.updates_per_rollout());
  return last;
}

std::shared_ptr<const JobSet> options_set() { return std::make_shared<const OptionsSet>(); }

}  // namespace tandem
