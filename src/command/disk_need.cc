#include "command/disk_need.h"

#include <fmt/format.h>

#include "hardware/machine.h"
#include "telemetry/human.h"

namespace tandem {

std::optional<DiskNeed> disk_need(const RecipeInfo& recipe, const RecipeSettings& settings) {
  constexpr uint64_t kWorthTelling = 10'000'000;
  if (!recipe.checkpoint_bytes) return std::nullopt;
  const DiskNeed need{recipe.checkpoint_bytes(settings), settings.checkpoint.keep};
  if (need.most() < kWorthTelling) return std::nullopt;
  return need;
}

std::string disk_text(const DiskNeed& need) {
  return fmt::format("checkpoints of about {}, the last {} are kept: up to {}, compressed a third to a half of it",
                     bytes_text(need.checkpoint_bytes), need.keep, bytes_text(need.most()));
}

std::optional<std::string> disk_warning(const DiskNeed& need, const std::filesystem::path& folder) {
  const auto disk = disk_facts(folder);
  if (!disk || disk->free_bytes >= need.most()) return std::nullopt;
  return fmt::format(
      "the disk of {} has {} left, and checkpoints may take {}: free some space (`tandem runs prune`), "
      "or name another folder with --runs-root",
      folder.string(), bytes_text(disk->free_bytes), bytes_text(need.most()));
}

}  // namespace tandem
