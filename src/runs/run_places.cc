#include "runs/run_places.h"

#include "base/plain_file.h"
#include "checkpoint/place.h"

namespace tandem {

namespace fs = std::filesystem;

void check_run_places(const fs::path& run_dir) {
  for (const char* name : {".lock", "metrics.jsonl", "events.jsonl", "ranks.jsonl", "gpus.jsonl"})
    refuse_misplaced(run_dir / name);
  for (const char* name : {"logs", "requests"}) refuse_misplaced(run_dir / name, true);
  refuse_linked_checkpoints(run_dir / "checkpoints");
  std::error_code ignored;  // no logs/ yet
  for (fs::directory_iterator log(run_dir / "logs", ignored), end; !ignored && log != end; log.increment(ignored))
    if (log->path().extension() == ".log") refuse_misplaced(log->path());
  std::error_code none;  // no set
  for (fs::directory_iterator run(run_dir / "agents", none), end; !none && run != end; run.increment(none))
    refuse_linked_checkpoints(run->path() / "checkpoints");
}

}  // namespace tandem
