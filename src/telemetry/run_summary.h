// telemetry/run_summary.h -- how a run stands or ended, and run.json, the small file that says so.
//
// run.json is rewritten atomically, so a reader sees the old state or the new one, never half of one. What a writer
// does not mention is kept: the launcher writes id and recipe, the worker status and figures.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "telemetry/step_record.h"

namespace tandem {

struct RunSummary {
  std::string status = "running";  // running | done | stopped | failed
  int64_t step = 0;
  double seconds = 0;  // training time, all starts of the run together if the caller knows it
  double loss = kAbsent;
  std::string digest, kind;
  int exit_code = 0;
  nlohmann::json extra = nlohmann::json::object();
};

nlohmann::json to_json(const RunSummary& summary);

// The object of run.json; {} if there is none or it is damaged.
nlohmann::json read_run_json(const std::filesystem::path& run_dir);
// Merges `changes` over what is there, stamps "updated", replaces the file atomically.
void update_run_json(const std::filesystem::path& run_dir, const nlohmann::json& changes);
// The same with a summary. "running" also records this process (pid, its start time, host, boot), so that a reader can
// distinguish a live run from one whose process is gone.
void write_run_status(const std::filesystem::path& run_dir, const RunSummary& summary);
// status of a run.json as it is now: "running" becomes "died" where nobody works in the folder. A process of this
// system is looked up. Of one that began elsewhere (another machine on a shared disk, another container, or a folder
// that was copied from there) the run's lock tells; where locks of other machines can't be seen, the files do: a
// launcher writes to them every few seconds.
std::string present_status(const nlohmann::json& run_json, const std::filesystem::path& run_dir);
// "process 4711 on node7", as run.json has it; "its process" where it has none.
std::string process_words(const nlohmann::json& run_json);

}  // namespace tandem
