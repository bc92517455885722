#include "engine/run.h"

#include <fmt/format.h>
#include <signal.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/clock.h"
#include "base/errors.h"
#include "base/file_system.h"
#include "config/devices.h"
#include "config/resolver.h"
#include "config/units.h"
#include "engine/checkpointer.h"
#include "engine/determinism.h"
#include "engine/kind.h"
#include "engine/snapshot.h"
#include "engine/stop_signals.h"
#include "engine/train_loop.h"
#include "nn/portable_vector.h"
#include "runs/run_folder.h"
#include "telemetry/telemetry.h"

namespace tandem {
namespace {

const RecipeEntry& find_entry(const std::vector<RecipeEntry>& recipes, const std::string& name) {
  std::vector<RecipeInfo> infos;
  for (const RecipeEntry& entry : recipes) infos.push_back(entry.info);
  const std::string found = find_recipe(infos, name).name;
  for (const RecipeEntry& entry : recipes)
    if (entry.info.name == found) return entry;
  throw std::logic_error("recipe list changed");
}

// The step at which the run is done; 0 if only time limits it. A unit that the user asked for wins over the recipe's
// default number of steps.
int64_t last_step(const RecipeSettings& settings, const Resolver& resolver, const Recipe& recipe) {
  int64_t last = 0;
  auto limit = [&](int64_t steps) { last = last == 0 ? steps : std::min(last, steps); };
  bool asked = false;
  for (const auto& [unit, count] : {std::pair<const char*, int64_t>{"epochs", settings.epochs},
                                    {"episodes", settings.episodes},
                                    {"iterations", settings.iterations}}) {
    if (count == 0) continue;
    const int64_t steps = recipe.steps_in(unit, count);
    if (steps == 0)
      throw ConfigError(fmt::format("this recipe has no {}", unit), "its stop rule counts other things",
                        "use --steps, or --max-time");
    asked = asked || resolver.source(unit) != "default";
    limit(steps);
  }
  if (settings.steps > 0 && !(asked && resolver.source("steps") == "default")) limit(settings.steps);
  return last;
}

std::vector<double> speeds_of(const std::vector<DeviceSpec>& devices) {
  std::vector<double> speeds;
  for (const DeviceSpec& device : devices) speeds.push_back(device.speed);
  return speeds;
}

nlohmann::json versions() { return {{"tandem", TANDEM_VERSION}, {"torch", TORCH_VERSION}, {"compiler", __VERSION__}}; }

// Everything a run holds while it goes on.
class Run {
 public:
  Run(const WorkRequest& request, const std::vector<RecipeEntry>& recipes);
  int train();

 private:
  void restore();
  void first_lines();
  void tell(const CheckpointReport& report);
  void save_now(bool must_succeed);
  void fail(int code, const char* what);
  int finish(int code, const std::string& status);
  CheckpointContents& identify(CheckpointContents& contents) const;

  const WorkRequest& request_;
  RunFolder folder_;
  std::unique_ptr<RecipeSettings> settings_;
  std::optional<Resolver> resolver_;
  std::string recipe_name_, kind_;
  std::vector<DeviceSpec> devices_;
  ShardPlan plan_;
  std::optional<TrainLoop> loop_;
  std::optional<CheckpointStore> store_;
  std::optional<Telemetry> telemetry_;
  std::optional<Checkpointer> checkpointer_;
  std::vector<std::string> restored_notes_;
  int64_t last_step_ = 0;
  double asked_stall_seconds_ = 0, final_save_seconds_ = 0;
  double max_seconds_ = 0, begin_ = 0, earlier_seconds_ = 0, last_loss_ = kAbsent;
};

Run::Run(const WorkRequest& request, const std::vector<RecipeEntry>& recipes)
    : request_(request), folder_(RunFolder::open(request.run_dir)) {
  const FileBytes text = read_whole_file(FileSystem::real(), folder_.recipe_toml(), 1 << 20);
  recipe_name_ = recipe_named_in(text.text(), "recipe.toml").value_or("");
  const RecipeEntry& entry = find_entry(recipes, recipe_name_);
  settings_ = entry.info.settings();
  resolver_.emplace(*settings_);
  resolver_->apply_toml(text.text(), "recipe.toml");
  devices_ = parse_devices(settings_->devices, Machine{});
  freeze(*resolver_, *settings_, static_cast<int>(devices_.size()));
  plan_ = ShardPlan::balance(static_cast<int>(settings_->shards), speeds_of(devices_));

  use_portable_vector();
  set_determinism();
  torch::manual_seed(static_cast<uint64_t>(settings_->seed));  // lint: allow(random) for constructors of users
  kind_ = cpu_kind();
  std::unique_ptr<Recipe> recipe = entry.make(*settings_);
  loop_.emplace(*settings_, std::move(recipe), plan_);
  last_step_ = last_step(*settings_, *resolver_, loop_->recipe());
  if (settings_->schedule.kind == "cosine" && settings_->schedule.total_steps == 0) {
    if (last_step_ == 0)
      throw ConfigError("schedule.kind is cosine, but nothing says after how many steps it ends",
                        "the run is limited by time alone, and the rate must not depend on the machine's speed",
                        "set schedule.total_steps");
    settings_->schedule.total_steps = last_step_;
    resolver_->note_source("schedule.total_steps", "the run's steps");
    folder_.write_recipe(resolver_->to_toml(recipe_name_));
  }
  max_seconds_ = request.max_seconds;
  if (max_seconds_ == 0 && !settings_->max_time.empty()) max_seconds_ = parse_duration(settings_->max_time).value_or(0);
  store_.emplace(FileSystem::real(), folder_.checkpoints(), static_cast<int>(settings_->checkpoint.keep));
  if (request.resume) restore();

  nlohmann::json env = versions();
  env["kind"] = kind_;
  env["kind_parts"] = cpu_kind_parts();
  folder_.write_env(env);
  telemetry_.emplace(TelemetryOptions{.run_dir = folder_.dir(),
                                      .json = request.json,
                                      .quiet = request.quiet,
                                      .color = request.color,
                                      .tty = isatty(STDERR_FILENO) == 1,
                                      .title = recipe_name_,
                                      .total_steps = last_step_,
                                      .max_seconds = max_seconds_,
                                      .resume_step = loop_->steps_done(),
                                      .unit = loop_->recipe().unit(),
                                      .resumed = request.resume});
  checkpointer_.emplace(*store_, settings_->checkpoint, [this](CheckpointContents& c) { identify(c); });
}

void Run::restore() {
  std::optional<LoadedCheckpoint> checkpoint =
      request_.checkpoint.empty() ? store_->load_newest() : store_->load(request_.checkpoint);
  if (!checkpoint) {
    restored_notes_.push_back("no checkpoint yet: the run begins at step 0");
    return;
  }
  for (const std::string& refused : checkpoint->refused) restored_notes_.push_back("refused checkpoint " + refused);
  const Manifest& manifest = checkpoint->manifest;
  if (manifest.recipe != recipe_name_)
    throw CheckpointError(fmt::format("{} was written by recipe '{}', not by '{}'", checkpoint->dir.string(),
                                      manifest.recipe, recipe_name_),
                          "its weights and shard states have another meaning", "resume the run that it belongs to");
  check_compatible(manifest.settings, resolver_->result_values(), folder_.id());
  restore_snapshot(*loop_, *checkpoint);
  earlier_seconds_ = manifest.scalars.value("seconds", 0.0);
  last_loss_ = manifest.scalars.value("loss", kAbsent);
  restored_notes_.push_back(
      fmt::format("resumed from step {} ({})", loop_->steps_done(), checkpoint->dir.filename().string()));
  if (manifest.kind != kind_)
    restored_notes_.push_back(
        fmt::format("the checkpoint is of kind {}, this machine is {}: bits are promised between equal "
                    "kinds only",
                    manifest.kind, kind_));
  if (manifest.kind != kind_ && settings_->exact == "require")
    throw ConfigError(fmt::format("the checkpoint is of kind {}, this machine is {}", manifest.kind, kind_),
                      "equal bits are promised between equal kinds, and exact = \"require\" asks for them",
                      "resume on a machine of that kind, or with --exact aim");
}

CheckpointContents& Run::identify(CheckpointContents& contents) const {
  contents.run_id = folder_.id();
  contents.recipe = recipe_name_;
  contents.settings = resolver_->result_values();
  contents.kind = kind_;
  contents.versions = versions();
  contents.scalars["seconds"] = earlier_seconds_ + monotonic_seconds() - begin_;
  contents.scalars["loss"] = last_loss_;
  return contents;
}

void Run::first_lines() {
  const int64_t piece = settings_->piece();
  telemetry_->say(fmt::format("run     {}", folder_.dir().string()));
  telemetry_->say(fmt::format("batch   {} shards x {}{} = {} per update", settings_->shards, piece,
                              settings_->accumulation > 1 ? fmt::format(" x {} pieces", settings_->accumulation) : "",
                              settings_->batch_size));
  std::string names;
  for (const DeviceSpec& device : devices_) names += " " + device.name();
  telemetry_->say(fmt::format("devices{}{}; {}", names, devices_.size() > 1 ? " (one process drives them in turn)" : "",
                              plan_.text()));
  if (plan_.efficiency() < 0.995)
    telemetry_->say(
        fmt::format("        whole shards cost {:.0f} % of the summed speed", 100 * (1 - plan_.efficiency())));
  if (settings_->sync_bn && loop_->state().has_batch_norm()) {
    const double mib = static_cast<double>(loop_->state().contribution_floats()) * 4 * settings_->shards / (1 << 20);
    telemetry_->say(
        fmt::format("sync_bn shards run in lock-step: {} gradients of {:.1f} MiB and all activations are alive at "
                    "once",
                    settings_->shards, mib / static_cast<double>(settings_->shards)));
  }
  telemetry_->say(fmt::format("exact   same bits on every machine of kind {}", kind_));
  for (const std::string& note : restored_notes_)
    note.rfind("refused", 0) == 0 || note.rfind("the checkpoint is", 0) == 0 ? telemetry_->warn(note)
                                                                             : telemetry_->say(note);
}

void Run::tell(const CheckpointReport& report) {
  if (report.saved) {
    telemetry_->checkpoint_saved(report.step, report.stall_seconds, report.bytes);
  } else {
    const int64_t intact = checkpointer_->last_saved_step();
    telemetry_->warn(
        fmt::format("checkpoint at step {} was NOT saved: {}; {}; training goes on", report.step, report.error,
                    intact >= 0 ? fmt::format("the one of step {} is intact", intact) : "earlier ones are intact"));
  }
  for (const std::string& warning : report.warnings) telemetry_->warn(warning);
}

void Run::save_now(bool must_succeed) {
  const CheckpointReport report = checkpointer_->save_now(*loop_, monotonic_seconds());
  while (auto earlier = checkpointer_->poll()) tell(*earlier);
  tell(report);
  (must_succeed ? final_save_seconds_ : asked_stall_seconds_) += report.stall_seconds;
  if (!report.saved && must_succeed)
    throw Error(ExitCode::kFailed, fmt::format("the last checkpoint, of step {}, could not be saved", report.step),
                report.error,
                "make room or mend the folder, then `tandem resume` goes on from the newest checkpoint that is whole");
}

int Run::train() {
  StopSignals signals;
  begin_ = monotonic_seconds();
  first_lines();
  telemetry_->flush();
  folder_.write_status({.status = "running",
                        .step = loop_->steps_done(),
                        .seconds = earlier_seconds_,
                        .kind = kind_,
                        .extra = {{"total_steps", last_step_}}});
  int code = 0;
  try {
    while (last_step_ == 0 || loop_->steps_done() < last_step_) {
      if (const int number = signals.stop_signal()) {
        code = 128 + number;
        break;
      }
      const double now = monotonic_seconds();
      if (max_seconds_ > 0 && now - begin_ >= max_seconds_) {
        code = static_cast<int>(ExitCode::kResumable);
        break;
      }
      const StepRecord record = loop_->step();
      if (!record.skipped) last_loss_ = record.loss;
      telemetry_->record(record);
      if (!loop_->note().empty()) telemetry_->warn(fmt::format("step {}: {}", record.step, loop_->note()));
      const bool asked = signals.take_save_request();
      if (asked) {
        save_now(false);
        telemetry_->say(fmt::format("saved step {} as asked; going on", record.step));
      }
      if (!asked && checkpointer_->due(record.step, monotonic_seconds()))
        checkpointer_->start(*loop_, monotonic_seconds());
      while (auto report = checkpointer_->poll()) tell(*report);
    }
    save_now(true);
  } catch (const Error& error) {
    fail(static_cast<int>(error.code()), error.what());
    throw;
  } catch (const std::exception& error) {
    fail(static_cast<int>(ExitCode::kFailed), error.what());
    throw;
  }
  return finish(code, code == 0 ? "done" : "stopped");
}

void Run::fail(int code, const char* what) {
  while (auto report = checkpointer_->poll()) tell(*report);
  telemetry_->warn(what);
  finish(code, "failed");
}

int Run::finish(int code, const std::string& status) {
  RunSummary summary{.status = status,
                     .step = loop_->steps_done(),
                     .seconds = earlier_seconds_ + monotonic_seconds() - begin_,
                     .loss = last_loss_,
                     .digest = digest_of(*loop_),
                     .kind = kind_,
                     .exit_code = code};
  // How long training waited for checkpoints; the save that ends a run is told apart, for nothing waits for it.
  const double here = monotonic_seconds() - begin_ - final_save_seconds_;
  const double stall = checkpointer_->stalled_seconds() + asked_stall_seconds_;
  summary.extra = {{"total_steps", last_step_},
                   {"checkpoint_stall_seconds", stall},
                   {"checkpoint_stall_share", here > 0 ? stall / here : 0},
                   {"final_save_seconds", final_save_seconds_}};
  if (status == "stopped") telemetry_->say(fmt::format("go on with `{} resume {}`", request_.program, folder_.id()));
  telemetry_->finish(summary);
  if (request_.json && status != "failed") {
    nlohmann::json out{{"schema", 1},
                       {"run", folder_.id()},
                       {"dir", std::filesystem::absolute(folder_.dir()).string()},
                       {"recipe", recipe_name_},
                       {"status", status},
                       {"step", summary.step},
                       {"seconds", summary.seconds},
                       {"loss", summary.loss},
                       {"digest", summary.digest},
                       {"kind", kind_},
                       {"exit_code", code}};
    out.update(summary.extra);
    fmt::print("{}\n", out.dump());
    std::fflush(stdout);
  }
  return code;
}

}  // namespace

int work(const WorkRequest& request, const std::vector<RecipeEntry>& recipes) {
  Run run(request, recipes);
  return run.train();
}

}  // namespace tandem
