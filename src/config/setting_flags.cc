// config/setting_flags.cc -- which flags set which lines of a recipe.
#include <algorithm>

#include "config/recipe_list.h"

namespace tandem {
namespace {

using On = SettingFlag::On;

const std::vector<SettingFlag>& flags_of_all() {
  static const std::vector<SettingFlag> flags = {
      {"--steps", "steps", "n", "stop after n updates", On::kPlanToo},
      {"--epochs", "epochs", "n", "stop after n passes over the data", On::kPlanToo},
      {"--episodes,--num-episodes", "episodes", "n", "stop after n episodes", On::kPlanToo},
      {"--iterations", "iterations", "n", "stop after n iterations"},
      {"--max-time", "max_time", "time", "stop after this time: 90s, 10m, 2h"},
      {"--checkpoint-every", "checkpoint.every", "time", "between checkpoints: auto, 60s, 10m, \"500 steps\", never"},
      {"--batch-size", "batch_size", "n", "samples of one update of the whole job"},
      {"--lr,--learning-rate", "optimizer.learning_rate", "x", "size of a step"},
      {"--precision", "precision", "word", "fp32, bf16, fp16; tf32 on a GPU"},
      {"--memory-fraction", "memory_fraction", "part", "most of a GPU's memory to take (0.9)"},
      {"--accumulation,--gradient-accumulation-steps", "accumulation", "n", "pieces in which a shard's slice runs"},
      {"--loader-threads,--num-workers", "loader.threads", "n", "threads that prepare batches"},
      {"--seed", "seed", "n", "start of every random stream"},
      {"--devices,--device", "devices", "list", "auto, cpu, cpu:4, cuda:0,cuda:2", On::kPlanToo},
      {"--power", "guard.power", "limit", "how far a hot GPU's power limit may be lowered: 80%, 180W"},
      {"--guard", "guard.mode", "word", "heat and power: on, watch (only tells), off"},
  };
  return flags;
}

}  // namespace

std::vector<SettingFlag> setting_flags(const std::vector<RecipeInfo>& recipes) {
  std::vector<SettingFlag> all = flags_of_all();
  for (const RecipeInfo& recipe : recipes)
    for (const SettingFlag& flag : recipe.flags)
      if (std::ranges::none_of(all, [&](const SettingFlag& other) { return other.names == flag.names; }))
        all.push_back(flag);
  all.push_back({"--exact", "exact", "[word]", "refuse to start where equal bits cannot be kept (require, aim)"});
  return all;
}

}  // namespace tandem
