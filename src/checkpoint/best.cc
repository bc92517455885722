#include "checkpoint/best.h"

#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "checkpoint/manifest.h"
#include "checkpoint/place.h"
#include "checkpoint/verify.h"

namespace tandem {
namespace {

namespace stdfs = std::filesystem;

constexpr char kNewBest[] = ".tmp-best", kOldBest[] = ".old-best";
constexpr std::uint64_t kLargestManifest = 256 << 20;

}  // namespace

bool is_best_checkpoint(const nlohmann::json& scalars, std::int64_t step) {
  const auto validation = scalars.find("validation");
  return validation != scalars.end() && validation->is_object() &&
         validation->value("best_step", std::int64_t{-1}) == step;
}

void mend_best(FileSystem& fs, const stdfs::path& checkpoints) {
  if (!fs.exists(checkpoints)) return;
  if (fs.exists(checkpoints / kOldBest)) {
    if (!fs.exists(checkpoints / kBestFolder))
      fs.rename(checkpoints / kOldBest, checkpoints / kBestFolder);
    else
      fs.remove_all(checkpoints / kOldBest);
  }
  if (fs.exists(checkpoints / kNewBest)) fs.remove_all(checkpoints / kNewBest);
}

void keep_best(FileSystem& fs, const stdfs::path& checkpoints, const stdfs::path& folder) {
  mend_best(fs, checkpoints);
  const stdfs::path made = checkpoints / kNewBest, best = checkpoints / kBestFolder, old = checkpoints / kOldBest;
  fs.mkdir(made);
  for (const std::string& name : fs.list(folder)) fs.link(folder / name, made / name);
  fs.fsync_dir(made);
  const bool replaces = fs.exists(best);
  if (replaces) fs.rename(best, old);
  fs.rename(made, best);
  fs.fsync_dir(checkpoints);
  try {
    if (replaces) fs.remove_all(old);
  } catch (const IoError&) {  // mend_best() tries again
  }
}

std::optional<std::int64_t> best_step(FileSystem& fs, const stdfs::path& checkpoints) {
  refuse_linked_checkpoints(checkpoints);
  const stdfs::path manifest = checkpoints / kBestFolder / kManifestFile;
  try {
    if (!fs.exists(manifest)) return std::nullopt;
    return Manifest::parse(read_whole_file(fs, manifest, kLargestManifest).text()).step;
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace tandem
