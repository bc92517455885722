#include "jobs/job.h"

#include <cmath>

#include "base/errors.h"
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

void read_job(const SetJob& job, JobStatus& status) {
  const nlohmann::json run = read_run_json(job.dir);
  status.digest = text_of(run, "digest");
  status.kind = text_of(run, "kind");
  status.step = std::max(status.step, whole_of(run, "step"));
  if (run.contains("seconds") && run["seconds"].is_number()) status.seconds = run["seconds"];
  try {
    read_metrics(job.dir / "metrics.jsonl", [&](const StepRecord& record) {
      status.step = std::max(status.step, record.step);
      if (std::isfinite(record.loss)) status.loss = record.loss;
      for (const auto& [name, value] : record.metrics) {
        if (name == "score" && std::isfinite(value)) status.score = value;
        if (name == "average_return" && std::isfinite(value)) status.average_return = value;
      }
    });
  } catch (const IoError&) {  // figures are missing then, and shown as missing
  }
}

bool is_done(const SetJob& job) {
  const nlohmann::json run = read_run_json(job.dir);
  return text_of(run, "status") == "done" && whole_of(run, "step") >= job.steps;
}

}  // namespace tandem
