#include "launch/run_record.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/clock.h"
#include "base/errors.h"
#include "base/file_system.h"
#include "base/shell_word.h"
#include "checkpoint/best.h"
#include "config/resolver.h"
#include "fleet/coordinator.h"
#include "runs/recipe_file.h"
#include "telemetry/atomic_file.h"
#include "telemetry/confusion_table.h"
#include "telemetry/human.h"
#include "telemetry/learning_figures.h"
#include "telemetry/metrics_line.h"
#include "telemetry/run_name.h"

namespace tandem {
namespace {

constexpr double kLongSeconds = 30;                // without a checkpoint: worth a word
constexpr uint64_t kLargeCheckpoint = 10'000'000;  // bytes: worth a word

}  // namespace

JobFacts JobFacts::from(const nlohmann::json& hello) {
  JobFacts facts;
  facts.recipe = hello.at("recipe");
  facts.recipe_toml = hello.at("recipe_toml");
  facts.kind = hello.at("kind");
  facts.kind_with_model = hello.value("kind_with_model", facts.kind);
  facts.unit = hello.at("unit");
  facts.kind_parts = hello.at("kind_parts");
  facts.versions = hello.at("versions");
  facts.settings = hello.at("settings");
  facts.total_steps = hello.at("total_steps");
  facts.floats = hello.at("floats");
  facts.counts = hello.at("counts");
  facts.maxima = hello.at("maxima");
  facts.exchange = hello.at("mail");
  facts.stateful = hello.at("stateful");
  facts.phases = hello.at("phases").get<std::vector<std::string>>();
  facts.training_phases = hello.value("training_phases", static_cast<int>(facts.phases.size()));
  facts.every = hello.value("every", facts.every);
  facts.lockstep_bytes = hello.at("lockstep_bytes");
  facts.layout = SnapshotLayout::from_json(hello.at("layout"));
  return facts;
}

RunRecord::RunRecord(const LaunchRequest& request, JobFacts facts)
    : request_(request),
      facts_(std::move(facts)),
      folder_(RunFolder::open(request.run_dir)),
      epoch_lines_(request.settings->epochs) {
  store_.emplace(FileSystem::real(), folder_.checkpoints(), static_cast<int>(request.settings->checkpoint.keep));
}

double RunRecord::seconds_left(int64_t step, double step_seconds) const {
  if (facts_.total_steps <= 0) return Coordinator::kForEver;
  return static_cast<double>(std::max<int64_t>(0, facts_.total_steps - step)) * step_seconds;
}

int64_t RunRecord::restore(SnapshotPool& pool) {
  int64_t step = -1;
  if (request_.resume) {
    std::optional<LoadedCheckpoint> checkpoint =
        request_.checkpoint.empty() ? store_->load_newest() : store_->load(request_.checkpoint);
    if (!checkpoint) {
      notes_.push_back("no checkpoint yet: the run begins at step 0");
    } else {
      for (const std::string& refused : checkpoint->refused) notes_.push_back("refused checkpoint " + refused);
      const Manifest& manifest = checkpoint->manifest;
      if (manifest.recipe != facts_.recipe)
        throw CheckpointError(fmt::format("{} was written by recipe '{}', not by '{}'", checkpoint->dir.string(),
                                          manifest.recipe, facts_.recipe),
                              "its weights and shard states have another meaning", "resume the run that it belongs to");
      check_compatible(manifest.settings, facts_.settings, folder_.id());
      step = manifest.step;
      put_best_right(*checkpoint);
      facts_.layout.fill(pool.bytes(pool.make_base(step)), *checkpoint);
      earlier_seconds_ = manifest.scalars.value("seconds", 0.0);
      if (manifest.scalars.contains("loss") && manifest.scalars.at("loss").is_number())
        last_loss_ = manifest.scalars.at("loss");
      notes_.push_back(fmt::format("resumed from step {} ({})", step, checkpoint->dir.filename().string()));
      if (manifest.kind != facts_.kind && manifest.kind != facts_.kind_with_model) {
        const std::string differs =
            fmt::format("the checkpoint is of kind {}, this machine is {}", manifest.kind, facts_.kind);
        notes_.push_back(differs + ": bits are promised between equal kinds only");
        if (request_.settings->exact == "require")
          throw ConfigError(differs,
                            "equal bits are promised between equal kinds, and exact = \"require\" asks for them",
                            "resume on a machine of that kind, or with --exact aim");
      }
    }
  }
  last_step_ = first_step_ = std::max<int64_t>(step, 0);
  folder_.write_recipe(facts_.recipe_toml);
  nlohmann::json env = facts_.versions;
  env["kind"] = facts_.kind;
  env["kind_parts"] = facts_.kind_parts;
  folder_.write_env(env);
  telemetry_.emplace(TelemetryOptions{.run_dir = folder_.dir(),
                                      .log_name = "run.log",
                                      .json = request_.json,
                                      .quiet = request_.quiet,
                                      .color = request_.color,
                                      .tty = isatty(STDERR_FILENO) == 1,
                                      .title = run_name(folder_.dir()),
                                      .total_steps = facts_.total_steps,
                                      .max_seconds = request_.max_seconds,
                                      .resume_step = last_step_,
                                      .unit = facts_.unit,
                                      .resumed = request_.resume});
  writer_ = std::make_unique<CheckpointWriter>(*store_, request_.settings->checkpoint, facts_.layout.bytes());
  begin_ = monotonic_seconds();
  return step;
}

// A crash may have come between a checkpoint and its second name; and a best one of a future that is given up by going
// on from an earlier step is none.
void RunRecord::put_best_right(const LoadedCheckpoint& checkpoint) {
  FileSystem& fs = FileSystem::real();
  const std::filesystem::path all = folder_.checkpoints();
  const int64_t step = checkpoint.manifest.step;
  try {
    mend_best(fs, all);
    const auto kept = best_step(fs, all);
    if (is_best_checkpoint(checkpoint.manifest.scalars, step) && kept != step)
      keep_best(fs, all, checkpoint.dir);
    else if (kept && *kept > step)
      fs.remove_all(all / kBestFolder);
  } catch (const IoError& error) {
    notes_.push_back(fmt::format("checkpoints/best could not be put right: {} ({})", error.what(), error.why()));
  }
}

void RunRecord::add_kind(const std::string& worker, const std::string& kind) {
  if (kind == facts_.kind || facts_.kind.find(kind) != std::string::npos) return;
  const std::string differs = fmt::format("{} is of kind {}, the run of {}", worker, kind, facts_.kind);
  if (request_.settings->exact == "require")
    throw ConfigError(differs, "equal bits are promised between equal kinds, and exact = \"require\" asks for them",
                      "use workers of one kind, or --exact aim");
  telemetry_->warn(differs + ": the bits of this run are its own");
  facts_.kind = facts_.kind.starts_with("mixed(") ? facts_.kind.substr(0, facts_.kind.size() - 1) + "+" + kind + ")"
                                                  : fmt::format("mixed({}+{})", facts_.kind, kind);
}

void RunRecord::first_lines(const std::string& devices, const std::string& plan) {
  const RecipeSettings& s = *request_.settings;
  telemetry_->say(fmt::format("run     {}", folder_.dir().string()));
  telemetry_->say(fmt::format("batch   {} shards x {}{} = {} per update", s.shards, s.micro_batch_size(),
                              s.accumulation > 1 ? fmt::format(" x {} micro-batches", s.accumulation) : "",
                              s.batch_size));
  telemetry_->say(fmt::format("devices {}; {}", devices, plan));
  if (facts_.lockstep_bytes > 0)
    telemetry_->say(
        fmt::format("sync_bn shards run in lock-step: {} gradients of {:.1f} MiB and all activations are alive at once",
                    s.shards, static_cast<double>(facts_.lockstep_bytes) / (1 << 20)));
  const bool any_model = facts_.kind_parts.value("device", "") == "cuda" && !facts_.kind_parts.contains("card");
  telemetry_->say(facts_.kind.starts_with("mixed(") ? fmt::format("exact   not promised: {}", facts_.kind)
                  : any_model
                      ? fmt::format("exact   same bits on every machine of kind {}, whatever its GPU of capability {}",
                                    facts_.kind, facts_.kind_parts.value("capability", "?"))
                      : fmt::format("exact   same bits on every machine of kind {}", facts_.kind));
  for (const std::string& note : notes_)
    note.starts_with("refused") || note.starts_with("the checkpoint is") ? telemetry_->warn(note)
                                                                         : telemetry_->say(note);
  if (const uint64_t bytes = facts_.layout.bytes(); bytes > kLargeCheckpoint)
    telemetry_->say(fmt::format(
        "disk    checkpoints of {}, the last {} are kept, at times one more: up to {} before compression",
        bytes_text(bytes), s.checkpoint.keep, bytes_text(bytes * static_cast<uint64_t>(s.checkpoint.keep + 1))));
  if (const double first = writer_->first_after(); first > kLongSeconds)
    telemetry_->say(fmt::format("{} checkpoint after about {:.0f} s; --checkpoint-every {}s for less",
                                first_step_ > 0 ? "next" : "first", first, first > 60 ? 60 : 10));
  telemetry_->flush();
  folder_.write_status({.status = "running",
                        .step = last_step_,
                        .seconds = earlier_seconds_,
                        .kind = facts_.kind,
                        .extra = {{"total_steps", facts_.total_steps}}});
}

void RunRecord::step_reported(const std::string& line) {
  StepRecord record;
  std::string reason;
  std::string_view text = line;
  if (text.ends_with('\n')) text.remove_suffix(1);
  if (!parse_metrics_line(text, record, reason)) {
    telemetry_->warn(fmt::format("a worker sent a record that can't be read: {}", reason));
    return;
  }
  if (record.step <= last_step_) return;  // computed again after a fault, or reported by the next rank too
  last_step_ = record.step;
  last_step_seconds_ = record.seconds;
  if (!record.skipped) last_loss_ = record.loss;
  telemetry_->record(record);
  if (const std::string line = epoch_lines_.take(record); !line.empty()) telemetry_->say(line);
  if (record.step == facts_.total_steps) telemetry_->flush();  // a set gives its device to the next job at once
  if (std::ranges::any_of(record.metrics, [](const auto& m) { return is_validation_metric(m.first); })) {
    last_validation_.clear();
    for (const auto& metric : record.metrics)
      if (is_validation_metric(metric.first)) last_validation_.push_back(metric);
  }
  last_record_ = std::move(record);
}

// What the base snapshot says of validation; null where there is none.
nlohmann::json RunRecord::validation_of(const SnapshotPool& pool) const {
  if (pool.base() < 0) return nullptr;
  try {
    return SnapshotLayout::get_scalars(pool.bytes(pool.base())).value("validation", nlohmann::json());
  } catch (const nlohmann::json::exception&) {  // its parts are on other machines, and never came
    return nullptr;
  }
}

bool RunRecord::reached_its_end(SnapshotPool& pool) const {
  if (facts_.total_steps > 0 && pool.base_step() >= facts_.total_steps) return true;
  const nlohmann::json validation = validation_of(pool);
  return validation.is_object() && validation.value("stops", false);
}

void RunRecord::tell_validation(const nlohmann::json& validation) {
  if (!validation.is_object()) return;
  const std::string metric = validation.value("metric", "");
  if (validation.value("stops", false))
    telemetry_->say(fmt::format("stopped early: {} has not become better in {} validations", metric,
                                validation.value("without_gain", int64_t{0})));
  const nlohmann::json best = validation.value("best", nlohmann::json());
  if (!best.is_number()) return;
  const int64_t step = validation.value("best_step", int64_t{0});
  telemetry_->say(fmt::format("best    {} {:.6g} at step {}: checkpoints/best", metric, best.get<double>(), step));
  std::optional<int64_t> kept;
  try {
    kept = best_step(FileSystem::real(), folder_.checkpoints());
  } catch (const Error& error) {  // somebody put a link there
    telemetry_->warn(error.what());
  }
  if (kept != step)
    telemetry_->warn(kept ? fmt::format("checkpoints/best is of step {}: that of step {} was not saved", *kept, step)
                          : fmt::format("there is no checkpoints/best: that of step {} was not saved", step));
}

double RunRecord::seconds() const { return earlier_seconds_ + monotonic_seconds() - begin_; }

CheckpointContents RunRecord::contents_of(SnapshotPool& pool, int buffer) const {
  const std::span<const std::byte> block = pool.bytes(buffer);
  CheckpointContents contents;
  facts_.layout.describe(block, contents);
  contents.step = pool.step_of(buffer);
  contents.shards = static_cast<int>(request_.settings->shards);
  contents.run_id = folder_.id();
  contents.recipe = facts_.recipe;
  contents.settings = facts_.settings;
  contents.kind = facts_.kind;
  contents.versions = facts_.versions;
  contents.scalars = SnapshotLayout::get_scalars(block);
  contents.scalars.erase("handled");  // requests are counted anew by every launcher
  if (const auto equal_at = contents.scalars.find("equal_at"); equal_at != contents.scalars.end()) {
    contents.sure = equal_at->get<int64_t>();
    contents.scalars.erase(equal_at);  // it depends on who trains
  }
  contents.scalars["seconds"] = seconds();
  contents.scalars["loss"] = last_loss_;
  return contents;
}

void RunRecord::start_checkpoint(SnapshotPool& pool, int buffer, double stall, double now, bool asked) {
  pool.lease(buffer);
  telemetry_->flush();  // a checkpoint never knows more steps than the records
  if (asked) asked_step_ = pool.step_of(buffer);
  CheckpointContents contents = contents_of(pool, buffer);
  note_best(contents);
  writer_->start(std::move(contents), buffer, stall, now);
}

void RunRecord::note_best(const CheckpointContents& contents) {
  if (!is_best_checkpoint(contents.scalars, contents.step)) return;
  const nlohmann::json& validation = contents.scalars.at("validation");
  best_[contents.step] = fmt::format("{}: {:.4f}", metric_title(validation.at("metric").get<std::string>()),
                                     validation.at("best").get<double>());
}

void RunRecord::report_checkpoints(SnapshotPool& pool) {
  while (const auto report = writer_->poll()) {
    if (report->buffer >= 0) pool.give_back(report->buffer);
    if (report->saved) {
      telemetry_->checkpoint_saved(report->step, report->stall_seconds, report->bytes);
      if (const auto best = best_.find(report->step); best != best_.end())
        telemetry_->say(
            fmt::format("saved best model: {} ({})", (folder_.checkpoints() / kBestFolder).string(), best->second));
      best_.erase(best_.begin(), best_.upper_bound(report->step));
      if (report->step == asked_step_) telemetry_->say(fmt::format("saved step {} as asked; going on", report->step));
    } else {
      const int64_t intact = writer_->last_saved_step();
      telemetry_->warn(fmt::format("checkpoint at step {} was NOT saved: {}; {}; training goes on", report->step,
                                   report->error,
                                   intact >= 0               ? fmt::format("the one of step {} is intact", intact)
                                   : store_->steps().empty() ? "there is no earlier one"
                                                             : "earlier ones are intact"));
    }
    for (const std::string& warning : report->warnings) telemetry_->warn(warning);
  }
}

void RunRecord::save_last(SnapshotPool& pool) {
  const double begin = monotonic_seconds();
  telemetry_->flush();
  const CheckpointReport report = writer_->save_now(contents_of(pool, pool.base()), 0);
  report_checkpoints(pool);
  final_save_seconds_ += monotonic_seconds() - begin;
  for (const std::string& warning : report.warnings) telemetry_->warn(warning);
  if (report.saved) {
    telemetry_->checkpoint_saved(report.step, report.write_seconds, report.bytes);
    return;
  }
  throw Error(ExitCode::kFailed, fmt::format("the last checkpoint, of step {}, could not be saved", report.step),
              report.error,
              fmt::format("make room or mend the folder, then `{} resume` goes on from the newest checkpoint that is "
                          "whole",
                          request_.program));
}

int RunRecord::finish(int code, const std::string& status, const SnapshotPool* pool, const nlohmann::json& extra) {
  const bool whole = pool && pool->base() >= 0 && status != "failed";
  RunSummary summary{.status = status,
                     .step = whole ? pool->base_step() : last_step_,
                     .seconds = seconds(),
                     .loss = last_loss_,
                     .digest = whole ? facts_.layout.digest(pool->bytes(pool->base())) : "",
                     .kind = facts_.kind,
                     .exit_code = code};
  // How long training waited for snapshots; the save that ends a run is reported apart, since nothing waits for it.
  const double here = monotonic_seconds() - begin_ - final_save_seconds_;
  summary.extra = {{"total_steps", facts_.total_steps},
                   {"checkpoint_stall_seconds", stall_seconds_},
                   {"checkpoint_stall_share", here > 0 ? stall_seconds_ / here : 0},
                   {"final_save_seconds", final_save_seconds_}};
  FigureName figure;
  for (const auto& [name, value] : last_record_.metrics)
    if (parse_figure_name(name, figure) && std::isfinite(value)) summary.extra[name] = value;
  for (const auto& [name, value] : last_validation_)
    if (std::isfinite(value) && !is_confusion_cell(name)) summary.extra[name] = value;
  if (const nlohmann::json validation = whole ? validation_of(*pool) : nlohmann::json(); validation.is_object()) {
    summary.extra["validation"] = validation;
    tell_validation(validation);
  }
  summary.extra.update(extra);
  // A file that says otherwise than what was trained would mislead its report and the next resume.
  if (const std::string words = put_recipe_right(folder_.dir(), facts_.recipe_toml, "the run"); !words.empty())
    telemetry_->warn(words);
  if (status == "stopped")
    telemetry_->say(fmt::format("go on with `{} resume {}`", request_.program, shell_word(folder_.id())));
  telemetry_->finish(summary);
  if (request_.json && status != "failed") {
    nlohmann::json out{{"schema", 1},
                       {"run", folder_.id()},
                       {"dir", std::filesystem::absolute(folder_.dir()).string()},
                       {"recipe", facts_.recipe},
                       {"status", status},
                       {"step", summary.step},
                       {"seconds", summary.seconds},
                       {"loss", summary.loss},
                       {"digest", summary.digest},
                       {"kind", facts_.kind},
                       {"exit_code", code}};
    out.update(summary.extra);
    fmt::print("{}\n", out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    std::fflush(stdout);
  }
  return code;
}

RunRecord::SetAside RunRecord::set_aside_after(SnapshotPool& pool, int64_t step) {
  writer_->finish();
  report_checkpoints(pool);
  SetAside done;
  try {
    for (const std::filesystem::path& aside : store_->set_aside_after(step)) {
      telemetry_->warn(fmt::format("what was trained after step {} may be wrong: that checkpoint is set aside as {}",
                                   step, aside.string()));
      if (!aside.filename().string().ends_with(kBestFolder)) done.suspect = aside;
    }
  } catch (const Error& error) {
    telemetry_->warn(
        fmt::format("checkpoints of steps after {} may be wrong and could not be set aside: {} ({}); "
                    "remove them before you resume",
                    step, error.what(), error.why()));
    done.failed = true;
  }
  for (const int64_t one : store_->steps())
    if (one <= step) done.sure = one;
  return done;
}

void RunRecord::fail(const Error& error, const nlohmann::json& extra) {
  telemetry_->warn(error.what());
  finish(static_cast<int>(error.code()), "failed", nullptr, extra);
}

}  // namespace tandem
