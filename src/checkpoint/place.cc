#include "checkpoint/place.h"

#include <fmt/format.h>

#include "base/errors.h"
#include "base/printable.h"

namespace tandem {
namespace {

namespace stdfs = std::filesystem;

void refuse_link(const stdfs::path& path) {
  std::error_code none;
  if (!stdfs::is_symlink(path, none)) return;
  throw ConfigError(fmt::format("{} is a symbolic link", printable(path.string())),
                    fmt::format("it leads to {}, and checkpoints are read, saved and removed in the run's own folder "
                                "alone: nothing there was touched",
                                printable(stdfs::read_symlink(path, none).string())),
                    "put the real folder in its place; for a larger disk, move the whole run there");
}

}  // namespace

void refuse_linked_checkpoints(const stdfs::path& checkpoints_dir) {
  refuse_link(checkpoints_dir);
  std::error_code none;  // no folder yet, or no right to list it: whoever uses it says so
  for (stdfs::directory_iterator entry(checkpoints_dir, none), end; !none && entry != end; entry.increment(none)) {
    const std::string name = entry->path().filename().string();
    for (const char* ours :
         {"step-", ".tmp-step-", ".old-step-", ".drop-step-", "best", ".tmp-best", ".old-best", "suspect-"})
      if (name.starts_with(ours)) refuse_link(entry->path());
  }
}

}  // namespace tandem
