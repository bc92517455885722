// config/setting_flags.cc -- which flags set which lines of a recipe.
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "config/recipe_list.h"

namespace tandem {
namespace {

using On = SettingFlag::On;

const std::vector<SettingFlag>& flags_of_all() {
  static const std::vector<SettingFlag> flags = {
      {"--steps", "steps", "n", "stop after n updates", On::kPlanToo},
      {"--epochs", "epochs", "n", "stop after n epochs", On::kPlanToo},
      {"--episodes,--num-episodes", "episodes", "n", "stop after n episodes", On::kPlanToo},
      {"--iterations", "iterations", "n", "stop after n iterations"},
      {"--max-time", "max_time", "time", "stop after this wall time: 90s, 10m, 2h"},
      {"--checkpoint-every", "checkpoint.every", "time", "between checkpoints: auto, 60s, 10m, \"500 steps\", never"},
      {"--batch-size", "batch_size", "n", "global batch size: samples of one update on all devices"},
      {"--lr,--learning-rate", "optimizer.learning_rate", "x", "learning rate"},
      {"--precision", "precision", "word", "fp32, bf16, fp16; tf32 on a GPU"},
      {"--memory-fraction", "memory_fraction", "part", "largest fraction of a GPU's memory to allocate (0.9)"},
      {"--accumulation,--gradient-accumulation-steps", "accumulation", "n", "micro-batches per update in each shard"},
      {"--loader-threads,--num-workers", "loader.threads", "n", "data loader threads per worker"},
      {"--seed", "seed", "n", "seed of all random numbers"},
      {"--devices,--device", "devices", "list", "auto, cpu, cpu:4, cuda:0,cuda:2", On::kPlanToo},
      {"--power", "guard.power", "limit", "lowest power limit that a hot GPU may get: 80%, 180W"},
      {"--guard", "guard.mode", "word", "heat and power: on, watch (reports only), off"},
      {"--exact", "exact", "[word]", "refuse to start where the result could depend on the machines (require, aim)"},
  };
  return flags;
}

// A flag and who brought it.
struct Brought {
  SettingFlag flag;
  std::string recipe;
};

// Before the last one; or its other names to those of a flag with the same key.
void add(std::vector<Brought>& all, const SettingFlag& flag, const std::string& recipe) {
  Brought* same = nullptr;
  std::string others;
  for (const std::string& name : names_of_flag(flag.names)) {
    const auto at = std::ranges::find_if(
        all, [&](const Brought& b) { return std::ranges::count(names_of_flag(b.flag.names), name) > 0; });
    if (at == all.end()) {
      others += (others.empty() ? "" : ",") + name;
      continue;
    }
    if (at->flag.key != flag.key)
      throw std::logic_error(fmt::format("the flag {} sets {} for {}, but {} for {}: give one of them another name",
                                         name, at->flag.key, at->recipe, flag.key, recipe));
    same = &*at;
  }
  if (!same) {
    all.insert(all.end() - 1, {flag, recipe});
    return;
  }
  if (!others.empty()) same->flag.names += "," + others;
  same->flag.on = std::max(same->flag.on, flag.on);
}

}  // namespace

std::vector<std::string> names_of_flag(const std::string& names) {
  std::vector<std::string> all;
  for (size_t begin = 0; begin <= names.size();) {
    const size_t end = std::min(names.find(',', begin), names.size());
    all.push_back(names.substr(begin, end - begin));
    begin = end + 1;
  }
  return all;
}

std::vector<SettingFlag> setting_flags(const std::vector<RecipeInfo>& recipes) {
  std::vector<Brought> brought;
  for (const SettingFlag& flag : flags_of_all()) brought.push_back({flag, "every recipe"});
  for (const RecipeInfo& recipe : recipes)
    for (const SettingFlag& flag : recipe.flags) add(brought, flag, "recipe " + recipe.name);
  std::vector<SettingFlag> all;
  for (Brought& one : brought) all.push_back(std::move(one.flag));
  return all;
}

}  // namespace tandem
