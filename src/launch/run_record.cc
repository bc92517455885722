#include "launch/run_record.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/clock.h"
#include "base/errors.h"
#include "base/file_system.h"
#include "config/resolver.h"
#include "fleet/coordinator.h"
#include "telemetry/metrics_line.h"

namespace tandem {
namespace {

constexpr double kLongSeconds = 30;  // without a checkpoint: worth a word

}  // namespace

JobFacts JobFacts::from(const nlohmann::json& hello) {
  JobFacts facts;
  facts.recipe = hello.at("recipe");
  facts.recipe_toml = hello.at("recipe_toml");
  facts.kind = hello.at("kind");
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
  facts.lockstep_bytes = hello.at("lockstep_bytes");
  facts.layout = SnapshotLayout::from_json(hello.at("layout"));
  return facts;
}

RunRecord::RunRecord(const LaunchRequest& request, JobFacts facts)
    : request_(request), facts_(std::move(facts)), folder_(RunFolder::open(request.run_dir)) {
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
      facts_.layout.fill(pool.bytes(pool.make_base(step)), *checkpoint);
      earlier_seconds_ = manifest.scalars.value("seconds", 0.0);
      if (manifest.scalars.contains("loss") && manifest.scalars.at("loss").is_number())
        last_loss_ = manifest.scalars.at("loss");
      notes_.push_back(fmt::format("resumed from step {} ({})", step, checkpoint->dir.filename().string()));
      if (manifest.kind != facts_.kind) {
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
                                      .title = facts_.recipe,
                                      .total_steps = facts_.total_steps,
                                      .max_seconds = request_.max_seconds,
                                      .resume_step = last_step_,
                                      .unit = facts_.unit,
                                      .resumed = request_.resume});
  writer_ = std::make_unique<CheckpointWriter>(*store_, request_.settings->checkpoint, facts_.layout.bytes());
  begin_ = monotonic_seconds();
  return step;
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
  telemetry_->say(fmt::format("batch   {} shards x {}{} = {} per update", s.shards, s.piece(),
                              s.accumulation > 1 ? fmt::format(" x {} pieces", s.accumulation) : "", s.batch_size));
  telemetry_->say(fmt::format("devices {}; {}", devices, plan));
  if (facts_.lockstep_bytes > 0)
    telemetry_->say(
        fmt::format("sync_bn shards run in lock-step: {} gradients of {:.1f} MiB and all activations are alive at once",
                    s.shards, static_cast<double>(facts_.lockstep_bytes) / (1 << 20)));
  telemetry_->say(facts_.kind.starts_with("mixed(")
                      ? fmt::format("exact   not promised: {}", facts_.kind)
                      : fmt::format("exact   same bits on every machine of kind {}", facts_.kind));
  for (const std::string& note : notes_)
    note.starts_with("refused") || note.starts_with("the checkpoint is") ? telemetry_->warn(note)
                                                                         : telemetry_->say(note);
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
    telemetry_->warn(fmt::format("a worker told a record that can't be read: {}", reason));
    return;
  }
  if (record.step <= last_step_) return;  // computed again after a fault, or told by the next rank too
  last_step_ = record.step;
  last_step_seconds_ = record.seconds;
  if (!record.skipped) last_loss_ = record.loss;
  telemetry_->record(record);
  if (record.step == facts_.total_steps) telemetry_->flush();  // a set gives its device to the next job at once
  last_record_ = std::move(record);
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
  contents.scalars["seconds"] = seconds();
  contents.scalars["loss"] = last_loss_;
  return contents;
}

void RunRecord::start_checkpoint(SnapshotPool& pool, int buffer, double stall, double now, bool asked) {
  pool.lease(buffer);
  telemetry_->flush();  // a checkpoint never knows more steps than the records
  if (asked) asked_step_ = pool.step_of(buffer);
  writer_->start(contents_of(pool, buffer), buffer, stall, now);
}

void RunRecord::tell_reports(SnapshotPool& pool) {
  while (const auto report = writer_->poll()) {
    if (report->buffer >= 0) pool.give_back(report->buffer);
    if (report->saved) {
      telemetry_->checkpoint_saved(report->step, report->stall_seconds, report->bytes);
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
  tell_reports(pool);
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
  // How long training waited for snapshots; the save that ends a run is told apart, for nothing waits for it.
  const double here = monotonic_seconds() - begin_ - final_save_seconds_;
  summary.extra = {{"total_steps", facts_.total_steps},
                   {"checkpoint_stall_seconds", stall_seconds_},
                   {"checkpoint_stall_share", here > 0 ? stall_seconds_ / here : 0},
                   {"final_save_seconds", final_save_seconds_}};
  summary.extra.update(extra);
  if (status == "stopped") telemetry_->say(fmt::format("go on with `{} resume {}`", request_.program, folder_.id()));
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
    fmt::print("{}\n", out.dump());
    std::fflush(stdout);
  }
  return code;
}

void RunRecord::fail(const Error& error, const nlohmann::json& extra) {
  telemetry_->warn(error.what());
  finish(static_cast<int>(error.code()), "failed", nullptr, extra);
}

}  // namespace tandem
