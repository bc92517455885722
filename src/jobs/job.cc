#include "jobs/job.h"

#include <cmath>

#include "base/errors.h"
#include "base/file_system.h"
#include "checkpoint/store.h"
#include "telemetry/metrics_file.h"
#include "telemetry/run_summary.h"

namespace tandem {
namespace {

std::string text_of(const nlohmann::json& object, const char* key) {
  return object.contains(key) && object[key].is_string() ? object[key].get<std::string>() : "";
}

int64_t whole_of(const nlohmann::json& object, const char* key) {
  return object.contains(key) && object[key].is_number_integer() ? object[key].get<int64_t>() : 0;
}

}  // namespace

std::string name_of(JobStatus::State state) {
  switch (state) {
    case JobStatus::State::kWaiting:
      return "waiting";
    case JobStatus::State::kRunning:
      return "running";
    case JobStatus::State::kDone:
      return "done";
    case JobStatus::State::kStopped:
      return "stopped";
    case JobStatus::State::kFailed:
      break;
  }
  return "failed";
}

void take_record(const StepRecord& record, JobStatus& status) {
  if (std::isfinite(record.loss)) status.loss = record.loss;
  for (const auto& [name, value] : record.metrics) {
    if (!std::isfinite(value)) continue;
    const size_t dot = name.rfind('.');  // "analysis.score" where several learn side by side
    const std::string_view what = dot == name.npos ? name : std::string_view(name).substr(dot + 1);
    if (what != "score" && what != "average_return") continue;
    if (dot == name.npos) {
      (what == "score" ? status.score : status.average_return) = value;
      continue;
    }
    JobStatus::Figures& one = status.of[name.substr(0, dot)];
    (what == "score" ? one.score : one.average_return) = value;
  }
}

void read_job(const SetJob& job, JobStatus& status) {
  const nlohmann::json run = read_run_json(job.dir);
  status.digest = text_of(run, "digest");
  status.kind = text_of(run, "kind");
  status.step = std::max(status.step, whole_of(run, "step"));
  if (run.contains("seconds") && run["seconds"].is_number()) status.seconds = run["seconds"];
  try {
    read_metrics(job.dir / "metrics.jsonl", [&](const StepRecord& record) {
      status.step = std::max(status.step, record.step);
      take_record(record, status);
    });
  } catch (const IoError&) {  // figures are missing then, and shown as missing
  }
}

int64_t saved_step(const SetJob& job) {
  try {
    const std::vector<int64_t> steps = CheckpointStore::reader(FileSystem::real(), job.dir / "checkpoints").steps();
    return steps.empty() ? 0 : steps.back();
  } catch (const Error&) {
    return 0;
  }
}

bool is_done(const SetJob& job) {
  const nlohmann::json run = read_run_json(job.dir);
  return text_of(run, "status") == "done" && whole_of(run, "step") >= job.steps;
}

bool end_is_whole(const SetJob& job) {
  try {
    const auto newest = CheckpointStore::reader(FileSystem::real(), job.dir / "checkpoints").load_newest();
    return !newest || newest->manifest.step >= job.steps;
  } catch (const CheckpointError&) {
    return false;
  } catch (const IoError&) {
    return true;
  }
}

SetRows rows_of(const std::vector<SetJob>& jobs, const std::vector<JobStatus>& status) {
  SetRows rows;
  for (size_t j = 0; j < jobs.size(); ++j) {
    rows.first.push_back(static_cast<int>(rows.jobs.size()));
    if (jobs[j].members.empty()) {
      rows.jobs.push_back(jobs[j]);
      rows.status.push_back(status[j]);
    }
    for (const SetJob::Member& member : jobs[j].members) {
      SetJob row = jobs[j];
      row.name = member.name;
      row.agent = member.agent;
      row.rule_score = member.rule_score;
      row.members.clear();
      JobStatus one = status[j];
      const auto figures = status[j].of.find(member.agent);
      one.score = figures == status[j].of.end() ? kAbsent : figures->second.score;
      one.average_return = figures == status[j].of.end() ? kAbsent : figures->second.average_return;
      one.of.clear();
      one.digest.clear();
      rows.jobs.push_back(std::move(row));
      rows.status.push_back(std::move(one));
    }
  }
  return rows;
}

}  // namespace tandem
