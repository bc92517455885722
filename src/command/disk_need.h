// command/disk_need.h -- what the checkpoints of a run will take on the disk, told before it begins.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "config/recipe_list.h"

namespace tandem {

struct DiskNeed {
  uint64_t checkpoint_bytes = 0;  // of one, or of one of each run of a set; about, before compression
  int64_t keep = 0;
  uint64_t most() const { return checkpoint_bytes * static_cast<uint64_t>(keep); }
};

// Nothing where the recipe does not know, or where the whole is below 10 MB.
std::optional<DiskNeed> disk_need(const RecipeInfo& recipe, const RecipeSettings& settings);

// "checkpoints of about 373 MB, the last 3 are kept: up to 1.12 GB, compressed a third to a half of it". How well a
// replay buffer will compress is not known before; the share is what was measured (docs/run-folder.md).
std::string disk_text(const DiskNeed& need);

// A sentence where the disk of `folder`, or of the nearest folder above that exists, has less room than that, before
// compression.
std::optional<std::string> disk_warning(const DiskNeed& need, const std::filesystem::path& folder);

}  // namespace tandem
