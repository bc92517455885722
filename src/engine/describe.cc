#include "engine/describe.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/file_system.h"
#include "config/resolver.h"
#include "engine/determinism.h"
#include "engine/last_step.h"
#include "engine/snapshot.h"
#include "engine/train_loop.h"
#include "launch/usage_book.h"
#include "nn/portable_vector.h"

namespace tandem {

int describe(const std::filesystem::path& run_dir, const std::vector<RecipeEntry>& recipes) {
  const FileBytes text = read_whole_file(FileSystem::real(), run_dir / "recipe.toml", 1 << 20);
  const std::string name = recipe_named_in(text.text(), "recipe.toml").value_or("");
  const RecipeEntry& entry = find_recipe_entry(recipes, name);
  const auto settings = entry.info.settings();
  Resolver resolver(*settings);
  resolver.apply_toml(text.text(), "recipe.toml");
  freeze(resolver, *settings, 1);
  use_portable_vector();
  set_determinism();
  torch::manual_seed(static_cast<uint64_t>(settings->seed));  // lint: allow(random) for constructors of users
  TrainLoop loop(*settings, entry.make(*settings), ShardRange{0, 0},
                 std::make_unique<LocalCombine>(static_cast<int>(settings->shards),
                                                std::vector<ShardRange>{{0, static_cast<int>(settings->shards)}}));
  schedule_in_steps(loop.recipe(), *settings, resolver);
  nlohmann::json phases = nlohmann::json::array();
  for (const Phase& phase : loop.phases()) phases.push_back(phase.name);
  const ContributionLayout largest = loop.largest_layout();
  const nlohmann::json out = {
      {"recipe", entry.info.name},    {"total_steps", last_step_of(*settings, resolver, loop.recipe())},
      {"unit", loop.recipe().unit()}, {"phases", phases},
      {"mail", largest.exchange},     {"state", state_bytes(snapshot_layout(loop), largest.floats)}};
  fmt::print("{}\n", out.dump());
  return std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace tandem
