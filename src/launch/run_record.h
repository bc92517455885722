// launch/run_record.h -- what a run tells and keeps while it goes on: telemetry, checkpoints, run.json, the last
// object.
//
// It lives in the launcher, so no worker's death takes a record with it: records of steps come through the workers'
// pages, each step once, whoever reported it and however often it was computed.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/store.h"
#include "fleet/snapshot_layout.h"
#include "launch/checkpoint_writer.h"
#include "launch/epoch_lines.h"
#include "launch/launcher.h"
#include "launch/snapshot_pool.h"
#include "runs/run_folder.h"
#include "telemetry/telemetry.h"

namespace tandem {

// What the first worker reported of the job; all others must report the same.
struct JobFacts {
  std::string recipe, recipe_toml, kind, unit;
  std::string kind_with_model;  // as checkpoints named it before a GPU's model was no part of `kind`
  nlohmann::json kind_parts, versions, settings;
  int64_t total_steps = 0, floats = 0, counts = 0, maxima = 0, lockstep_bytes = 0;
  bool exchange = false, stateful = false;
  std::vector<std::string> phases;  // training's, then those of validation sets
  int training_phases = 1;
  std::map<std::string, int64_t> every;  // of training's phases that do not run at every step
  SnapshotLayout layout;
  static JobFacts from(const nlohmann::json& hello);
};

class RunRecord {
 public:
  RunRecord(const LaunchRequest& request, JobFacts facts);

  // ---- at the start ----
  // Puts the newest whole checkpoint (or the one asked for) into the pool as its base; returns its step, or -1.
  int64_t restore(SnapshotPool& pool);
  void first_lines(const std::string& devices, const std::string& plan);

  // ---- on the way ----
  void step_reported(const std::string& metrics_line);
  int64_t last_step() const { return last_step_; }
  int64_t first_step() const { return first_step_; }  // that this start went on from
  double last_step_seconds() const { return last_step_seconds_; }
  // After `step`; Coordinator::kForEver where only a clock ends the run.
  double seconds_left(int64_t step, double step_seconds) const;
  const StepRecord& last_record() const { return last_record_; }
  Telemetry& telemetry() { return *telemetry_; }
  const JobFacts& facts() const { return facts_; }
  // A worker of another kind than the others: the run's own kind is "mixed" from then on, in all it writes. Throws
  // ConfigError where exact = "require".
  void add_kind(const std::string& worker, const std::string& kind);
  double seconds() const;
  CheckpointWriter& writer() { return *writer_; }
  void start_checkpoint(SnapshotPool& pool, int buffer, double stall_seconds, double now, bool asked);  // by the user
  void report_checkpoints(SnapshotPool& pool);
  void add_stall(double seconds) { stall_seconds_ += seconds; }

  // ---- at the end ----
  // The base snapshot is of the last step, or of the one at which validation ended the run.
  bool reached_its_end(SnapshotPool& pool) const;
  // Saves the base snapshot; throws Error if it can't be saved.
  void save_last(SnapshotPool& pool);
  // Writes the summary, prints the object if asked, returns the code.
  int finish(int code, const std::string& status, const SnapshotPool* pool, const nlohmann::json& extra);
  void fail(const Error& error, const nlohmann::json& extra);
  // Checkpoints of later steps are suspect: no resume is to take them.
  struct SetAside {
    std::optional<int64_t> sure;    // the step of the newest of the others
    std::filesystem::path suspect;  // the newest that was set aside
    bool failed = false;            // some may be where they were
  };
  SetAside set_aside_after(SnapshotPool& pool, int64_t step);

 private:
  void put_best_right(const LoadedCheckpoint& checkpoint);
  nlohmann::json validation_of(const SnapshotPool& pool) const;
  void tell_validation(const nlohmann::json& validation);
  CheckpointContents contents_of(SnapshotPool& pool, int buffer) const;
  void note_best(const CheckpointContents& contents);

  const LaunchRequest& request_;
  JobFacts facts_;
  RunFolder folder_;
  std::optional<CheckpointStore> store_;
  std::optional<Telemetry> telemetry_;
  std::unique_ptr<CheckpointWriter> writer_;
  std::vector<std::string> notes_;
  EpochLines epoch_lines_;
  std::map<int64_t, std::string> best_;  // by step, of checkpoints on their way: "F1: 0.6821"
  StepRecord last_record_;
  NamedValues last_validation_;
  int64_t first_step_ = 0, last_step_ = 0, asked_step_ = -1;
  double begin_ = 0, earlier_seconds_ = 0, last_loss_ = kAbsent, last_step_seconds_ = 0;
  double stall_seconds_ = 0, final_save_seconds_ = 0;
};

}  // namespace tandem
