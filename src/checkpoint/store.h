// checkpoint/store.h -- the checkpoints of one run: saved whole or not at all, loaded verified or not at all.
//
//   checkpoints/step-00000200/{model.safetensors,state.safetensors.zst,manifest.json}
//   checkpoints/best/             the one whose validation was the best (checkpoint/best.h)
//   checkpoints/latest            names the folder saved last; for people and scripts, never trusted by a load
//   checkpoints/suspect-step-...  set aside, since its weights may be wrong: never loaded unless it is named
//
// A checkpoint is built in .tmp-step-..., fsynced and renamed, so a crash at any moment leaves the one before as the
// newest whole one. docs/run-folder.md gives the order of the calls and why.
// One thread at a time; the folder is locked against a second writer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/file_system.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/verify.h"

namespace tandem {

struct CheckpointContents {
  std::int64_t step = 0;
  std::string run_id, recipe;
  nlohmann::json settings = nlohmann::json::object();  // key -> value, resolved
  int shards = 0;
  std::string kind;
  nlohmann::json versions = nlohmann::json::object();
  nlohmann::json scalars = nlohmann::json::object();  // schedule, scaler, counters
  std::vector<TensorView> model, state;               // must stay unchanged while save() runs
  std::optional<std::int64_t> sure;                   // no checkpoint of up to this step can turn out to be suspect
  std::map<std::string, std::string> aliases;  // further name of a tensor of `model` -> the name it is stored under
};

struct LoadedCheckpoint {
  Manifest manifest;
  SafetensorsFile model, state;
  std::filesystem::path dir;
  // Newer ones that were passed over, each with its reason:
  // "step-00000200: model.safetensors: tensor 'fc1.weight' differs from its checksum"
  std::vector<std::string> refused;
};

class CheckpointStore {
 public:
  // Opens for writing: makes and locks the folder and clears away what an interrupted save left behind. Throws
  // ConfigError if another process writes there, if keep < 2, or if a link stands in its place (checkpoint/place.h; all
  // below throw that too).
  CheckpointStore(FileSystem& fs, std::filesystem::path checkpoints_dir, int keep);
  // Opens for loading only: changes nothing, takes no lock, safe beside a running writer.
  static CheckpointStore reader(FileSystem& fs, std::filesystem::path checkpoints_dir);

  // Returns its folder once it is durable; then, and only then, older generations beyond `keep` are dropped, save the
  // newest that is sure where `contents` tells of one: later ones may have to be set aside. Throws
  // IoError otherwise, the old ones intact. Saving a step makes it the newest: later ones, of a future that was
  // abandoned by loading an earlier one, go.
  std::filesystem::path save(const CheckpointContents& contents);

  // The newest whole one; nullopt if there is none at all. CheckpointError if there are some and none is whole.
  std::optional<LoadedCheckpoint> load_newest(CheckpointParts parts = CheckpointParts::kAll);
  // This one, every byte verified, or CheckpointError. NewerFormatError is one too: load_newest() does not fall back
  // over it, for it is no damage. IoError for what says nothing about the checkpoint (too many open files, no right to
  // read).
  LoadedCheckpoint load(const std::filesystem::path& dir, CheckpointParts parts = CheckpointParts::kAll);

  // Later checkpoints, and `best` if it is of a later step, become suspect-*; those set aside before under that name
  // go. Returns the new folders. Throws IoError.
  std::vector<std::filesystem::path> set_aside_after(std::int64_t step);

  std::vector<std::int64_t> steps() const;  // of the folders that are there, ascending; not verified
  // At most: how well the state will compress is not known before.
  std::uint64_t bytes_needed(const CheckpointContents& contents) const;
  std::uint64_t last_bytes() const { return last_bytes_; }  // on the disk, of the one saved last
  // A sentence for the user when fewer than two further checkpoints of this size fit.
  std::optional<std::string> space_warning(std::uint64_t bytes) const;
  // What the last save() could not tidy up. The checkpoint itself is safe; the next open tries again.
  const std::vector<std::string>& last_warnings() const { return warnings_; }

 private:
  struct ReadOnly {};
  CheckpointStore(FileSystem& fs, std::filesystem::path checkpoints_dir, ReadOnly);
  void clear_leftovers();
  void keep_if_best(const CheckpointContents& contents);
  void commit(const std::filesystem::path& built, std::int64_t step);
  void drop_old(std::optional<std::int64_t> sure);
  void drop(const std::filesystem::path& dir);
  std::string check_latest(std::int64_t newest) const;  // "" or what is wrong with it

  FileSystem* fs_;
  std::filesystem::path dir_;
  int keep_ = 0;  // 0: read only
  OpenFile lock_;
  std::set<std::int64_t> refused_steps_;  // known to be damaged: do not count as generations
  std::vector<std::string> warnings_;
  std::uint64_t last_bytes_ = 0;
};

}  // namespace tandem
