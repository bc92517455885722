#include "checkpoint/store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <functional>
#include <stdexcept>

#include "checkpoint/best.h"
#include "checkpoint/place.h"
#include "checkpoint/verify.h"
#include "checkpoint/zstd_file.h"

namespace tandem {
namespace {

namespace stdfs = std::filesystem;

constexpr char kLatest[] = "latest";
constexpr char kTmpLatest[] = ".tmp-latest";
constexpr char kTmp[] = ".tmp-step-";    // being built
constexpr char kDrop[] = ".drop-step-";  // an old generation on its way out
constexpr char kOld[] = ".old-step-";    // ".old-step-A-for-step-B": A makes way for B; put back if B never came
constexpr char kFor[] = "-for-step-";
constexpr char kSuspect[] = "suspect-";

std::string digits_of(std::int64_t step) { return fmt::format("{:08d}", step); }
std::string folder_of(std::int64_t step) { return "step-" + digits_of(step); }

// The step in a folder's name, if it is spelled exactly as we would spell it.
std::optional<std::int64_t> step_of(std::string_view name, std::string_view prefix = "step-") {
  if (!name.starts_with(prefix)) return std::nullopt;
  const std::string_view digits = name.substr(prefix.size());
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || end != digits.data() + digits.size() || digits_of(step) != digits) return std::nullopt;
  return step;
}

std::uint64_t blocks(std::uint64_t bytes) { return (bytes + 4095) / 4096 * 4096; }
constexpr std::uint64_t kSmallBlocks = 2 * 4096;  // a folder, `latest`

std::string megabytes(std::uint64_t bytes) { return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6); }

void write_text(FileSystem& fs, const stdfs::path& path, std::string_view text) {
  OpenFile file(fs, fs.open_new(path));
  file.write_all(std::as_bytes(std::span(text.data(), text.size())));
  fs.fsync(file.handle());
  file.close();
}

// As Hugging Face's save_model() notes shared tensors: the further name, and the one it is stored under.
std::map<std::string, std::string> with_aliases(std::map<std::string, std::string> metadata,
                                                const CheckpointContents& contents) {
  metadata.insert(contents.aliases.begin(), contents.aliases.end());
  return metadata;
}

Manifest manifest_of(const CheckpointContents& contents) {
  Manifest manifest;
  manifest.step = contents.step;
  manifest.run_id = contents.run_id;
  manifest.recipe = contents.recipe;
  manifest.settings = contents.settings;
  manifest.shards = contents.shards;
  manifest.kind = contents.kind;
  manifest.versions = contents.versions;
  manifest.scalars = contents.scalars;
  return manifest;
}

// Runs `undo` unless dismissed; an undo that fails leaves something for the next open to clear away.
class UndoUnlessDone {
 public:
  explicit UndoUnlessDone(std::function<void()> undo) : undo_(std::move(undo)) {}
  ~UndoUnlessDone() {
    try {
      if (undo_) undo_();
    } catch (const std::exception&) {
    }
  }
  void dismiss() { undo_ = nullptr; }

 private:
  std::function<void()> undo_;
};

}  // namespace

CheckpointStore::CheckpointStore(FileSystem& fs, stdfs::path checkpoints_dir, int keep)
    : fs_(&fs), dir_(std::move(checkpoints_dir)), keep_(keep) {
  if (keep < 2)
    throw ConfigError(fmt::format("checkpoint.keep = {} is too few", keep),
                      "if the only checkpoint is damaged, the run is lost", "set it to 2 or more");
  refuse_linked_checkpoints(dir_);
  fs_->mkdir(dir_);
  fs_->fsync_dir(dir_.has_parent_path() ? dir_.parent_path() : stdfs::path("."));  // or all of it may be lost at once
  try {
    lock_ = OpenFile(fs, fs_->lock_dir(dir_));
  } catch (const IoError& error) {
    if (error.error_number() != EWOULDBLOCK) throw;
    throw ConfigError(fmt::format("another process writes checkpoints in {}", dir_.string()),
                      "two writers in one folder would drop each other's checkpoints",
                      "wait for it to end, or stop it; `tandem runs` shows which runs are alive");
  }
  clear_leftovers();
}

CheckpointStore::CheckpointStore(FileSystem& fs, stdfs::path checkpoints_dir, ReadOnly)
    : fs_(&fs), dir_(std::move(checkpoints_dir)) {}

CheckpointStore CheckpointStore::reader(FileSystem& fs, stdfs::path checkpoints_dir) {
  return CheckpointStore(fs, std::move(checkpoints_dir), ReadOnly{});
}

void CheckpointStore::clear_leftovers() {
  std::vector<std::string> leftovers;
  std::string replaced_by;
  bool restored = false;
  for (const std::string& name : fs_->list(dir_)) {
    if (name.starts_with(kTmp) || name.starts_with(kDrop) || name == kTmpLatest) leftovers.push_back(name);
    const std::size_t middle = name.find(kFor);
    if (!name.starts_with(kOld) || middle == std::string::npos) continue;
    const std::string home = "step-" + name.substr(sizeof kOld - 1, middle - (sizeof kOld - 1));
    const std::string successor = "step-" + name.substr(middle + sizeof kFor - 1);
    if (fs_->exists(dir_ / successor)) {
      replaced_by = successor;
    } else if (!fs_->exists(dir_ / home)) {
      fs_->rename(dir_ / name, dir_ / home);
      restored = true;
      continue;
    }
    leftovers.push_back(name);
  }
  if (restored || !replaced_by.empty()) fs_->fsync_dir(dir_);  // the successor must be durable before the old one goes
  try {
    // The crash came between the two renames: `latest` may still name what was replaced.
    if (!replaced_by.empty()) replace_file(*fs_, dir_ / kLatest, replaced_by + "\n");
  } catch (const IoError& error) {
    warnings_.push_back(fmt::format("{} ({})", error.what(), error.why()));
  }
  for (const std::string& name : leftovers) drop(dir_ / name);
}

stdfs::path CheckpointStore::save(const CheckpointContents& contents) {
  if (keep_ == 0) throw std::logic_error("save() on a checkpoint store opened for reading");
  if (contents.step < 0) throw std::logic_error("a checkpoint of a negative step");
  warnings_.clear();
  const stdfs::path tmp = dir_ / (kTmp + digits_of(contents.step));
  clear_leftovers();  // of a save that failed: its room may be needed
  UndoUnlessDone remove_tmp([&] { fs_->remove_all(tmp); });
  fs_->mkdir(tmp);
  Manifest manifest = manifest_of(contents);
  const auto tie = tie_metadata(manifest);
  SafetensorsWriter model(*fs_, tmp / kModelFile, contents.model, with_aliases(tie, contents));  // reserves its room
  SafetensorsWriter state(*fs_, tmp / kStateFile, contents.state, tie, Packing::kZstd);
  // First the one whose size nobody knows: a full disk is met there.
  const FileSums& saved_state = manifest.files[kStateFile] = state.write();
  const FileSums& saved_model = manifest.files[kModelFile] = model.write();
  const std::string text = manifest.to_text();
  write_text(*fs_, tmp / kManifestFile, text);
  fs_->fsync_dir(tmp);
  commit(tmp, contents.step);
  remove_tmp.dismiss();
  refused_steps_.erase(contents.step);
  last_bytes_ = blocks(saved_model.size) + blocks(saved_state.packed_size) + blocks(text.size()) + kSmallBlocks;
  keep_if_best(contents);
  drop_old(contents.sure);
  return dir_ / folder_of(contents.step);
}

void CheckpointStore::keep_if_best(const CheckpointContents& contents) {
  if (!is_best_checkpoint(contents.scalars, contents.step)) return;
  try {
    keep_best(*fs_, dir_, dir_ / folder_of(contents.step));
  } catch (const IoError& error) {
    warnings_.push_back(fmt::format("checkpoints/best is still the one before: {} ({})", error.what(), error.why()));
  }
}

void CheckpointStore::commit(const stdfs::path& built, std::int64_t step) {
  // All that needs room on the disk comes before the rename; after it a full disk can no longer get in the way.
  const stdfs::path latest = dir_ / kTmpLatest;
  UndoUnlessDone remove_latest([&] { fs_->remove_all(latest); });
  write_text(*fs_, latest, folder_of(step) + "\n");

  std::vector<std::pair<stdfs::path, stdfs::path>> aside;  // from, to
  UndoUnlessDone put_back([&] {
    for (const auto& [from, to] : aside) fs_->rename(to, from);
  });
  for (std::int64_t later : steps()) {
    if (later < step) continue;
    const stdfs::path to = dir_ / (kOld + digits_of(later) + kFor + digits_of(step));
    fs_->rename(dir_ / folder_of(later), to);
    aside.emplace_back(dir_ / folder_of(later), to);
  }
  if (!aside.empty()) fs_->fsync_dir(dir_);  // or a power cut could keep the abandoned future and the new one
  fs_->rename(built, dir_ / folder_of(step));
  put_back.dismiss();
  fs_->fsync_dir(dir_);
  fs_->rename(latest, dir_ / kLatest);
  remove_latest.dismiss();
  fs_->fsync_dir(dir_);
  for (const auto& [from, to] : aside) drop(to);
}

void CheckpointStore::drop_old(std::optional<std::int64_t> sure) {
  try {
    const std::vector<std::int64_t> all = steps();
    int kept = 0;
    for (auto step = all.rbegin(); step != all.rend(); ++step) {
      const bool whole = !refused_steps_.count(*step);
      const bool newest_sure = whole && sure && *step <= *sure;
      if (newest_sure) sure.reset();
      if (whole && (++kept <= keep_ || newest_sure)) continue;
      // Renamed first, so that nobody ever sees half a generation.
      const stdfs::path dropped = dir_ / (kDrop + digits_of(*step));
      fs_->rename(dir_ / folder_of(*step), dropped);
      refused_steps_.erase(*step);
      drop(dropped);
    }
  } catch (const Error& error) {
    warnings_.push_back(fmt::format("{} ({})", error.what(), error.why()));
  }
}

void CheckpointStore::drop(const stdfs::path& dir) {
  try {
    fs_->remove_all(dir);
  } catch (const IoError& error) {
    warnings_.push_back(fmt::format("{} ({})", error.what(), error.why()));
  }
}

std::vector<stdfs::path> CheckpointStore::set_aside_after(std::int64_t step) {
  std::vector<std::string> names;
  std::string sure;
  for (const std::int64_t one : steps()) {
    if (one > step)
      names.push_back(folder_of(one));
    else
      sure = folder_of(one);
  }
  // One that does not tell its step may be of any.
  const std::optional<std::int64_t> best = best_step(*fs_, dir_);
  if (best ? *best > step : !names.empty() && fs_->exists(dir_ / kBestFolder)) names.push_back(kBestFolder);
  std::vector<stdfs::path> aside;
  for (const std::string& name : names) {
    aside.push_back(dir_ / (kSuspect + name));
    fs_->remove_all(aside.back());
    fs_->rename(dir_ / name, aside.back());
  }
  if (names.empty()) return aside;
  if (sure.empty())
    fs_->remove_all(dir_ / kLatest);
  else
    replace_file(*fs_, dir_ / kLatest, sure + "\n");
  fs_->fsync_dir(dir_);
  return aside;
}

LoadedCheckpoint CheckpointStore::load(const stdfs::path& dir, CheckpointParts parts) {
  const stdfs::path folder = dir.has_filename() ? dir : dir.parent_path();
  const std::string name = folder.filename().string();
  if (step_of(name) || name == kBestFolder) refuse_linked_checkpoints(folder.parent_path());
  try {
    VerifiedCheckpoint verified = read_and_verify(*fs_, folder, parts);
    const auto step = step_of(name);
    if (step && *step != verified.manifest.step)
      throw CheckpointError(fmt::format("{}: is of step {}", kManifestFile, verified.manifest.step),
                            "the folder was renamed, or copied from another place",
                            "give the folder back its name, or remove it");
    return {std::move(verified.manifest), std::move(verified.model), std::move(verified.state), folder, {}};
  } catch (const NewerFormatError& error) {
    throw NewerFormatError(name + ": " + error.what(), error.why(), error.todo());
  } catch (const CheckpointError& error) {
    throw CheckpointError(name + ": " + error.what(), error.why(), error.todo());
  }
}

std::optional<LoadedCheckpoint> CheckpointStore::load_newest(CheckpointParts parts) {
  // A second look, because beside a running writer a generation may be dropped between listing and reading it.
  for (int look = 0; look < 5; ++look) {
    std::vector<std::string> refused;
    bool vanished = false;
    std::vector<std::int64_t> all = steps();
    for (auto step = all.rbegin(); step != all.rend(); ++step) {
      const stdfs::path folder = dir_ / folder_of(*step);
      try {
        LoadedCheckpoint loaded = load(folder, parts);
        if (std::string wrong = check_latest(all.back()); !wrong.empty()) refused.push_back(std::move(wrong));
        loaded.refused = std::move(refused);
        return loaded;
      } catch (const NewerFormatError&) {
        throw;
      } catch (const CheckpointError& error) {
        if (!fs_->exists(folder)) {
          vanished = true;
          continue;
        }
        refused.push_back(error.what());
        refused_steps_.insert(*step);
      }
    }
    if (vanished) continue;
    if (refused.empty()) return std::nullopt;
    throw CheckpointError(fmt::format("no checkpoint in {} is whole", dir_.string()),
                          fmt::format("{}", fmt::join(refused, "; ")),
                          "bring back a copy of this folder, or begin a new run with `tandem train`");
  }
  return std::nullopt;
}

std::string CheckpointStore::check_latest(std::int64_t newest) const {
  try {
    std::string name(read_whole_file(*fs_, dir_ / kLatest, 64).text());
    const bool ends_well = name.ends_with('\n');
    if (ends_well) name.pop_back();
    const auto step = step_of(name);
    if (!step || !ends_well) return "latest: is damaged; it is not needed to load";
    // One behind is what a crash between the two renames leaves.
    if (*step > newest) return fmt::format("latest: names {}, which is missing", name);
  } catch (const IoError&) {  // a copy without it is as good
  }
  return "";
}

std::vector<std::int64_t> CheckpointStore::steps() const {
  std::vector<std::int64_t> found;
  refuse_linked_checkpoints(dir_);
  if (!fs_->exists(dir_)) return found;
  for (const std::string& name : fs_->list(dir_))
    if (const auto step = step_of(name)) found.push_back(*step);
  std::sort(found.begin(), found.end());
  return found;
}

std::uint64_t CheckpointStore::bytes_needed(const CheckpointContents& contents) const {
  Manifest manifest = manifest_of(contents);
  const auto tie = tie_metadata(manifest);
  const auto list = [&](const char* file, const std::vector<TensorView>& tensors, const auto& metadata) {
    FileSums& sums = manifest.files[file];
    sums.size = safetensors_size(tensors, metadata);
    sums.checksum = std::string(39, '0');
    for (const TensorView& tensor : tensors) sums.tensors[tensor.name] = std::string(22, '0');
    return sums.size;
  };
  const std::uint64_t model = list(kModelFile, contents.model, with_aliases(tie, contents)),
                      state = list(kStateFile, contents.state, tie);
  manifest.files[kStateFile].packed_size = state;
  manifest.files[kStateFile].packed_checksum = std::string(39, '0');
  return blocks(model) + blocks(zstd_bound(state)) + blocks(manifest.to_text().size()) + kSmallBlocks;
}

std::optional<std::string> CheckpointStore::space_warning(std::uint64_t bytes) const {
  const std::uint64_t free = fs_->free_bytes(dir_);
  const std::uint64_t fit = bytes ? free / bytes : 2;
  if (fit >= 2) return std::nullopt;
  return fmt::format("the disk of {} has {} left, room for {} more checkpoint{} of {}: free some space there",
                     dir_.string(), megabytes(free), fit, fit == 1 ? "" : "s", megabytes(bytes));
}

}  // namespace tandem
