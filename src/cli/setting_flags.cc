// cli/setting_flags.cc -- which flags set which lines of a recipe.
#include "cli/arguments.h"

namespace tandem {

const std::vector<SettingFlag>& setting_flags() {
  static const std::vector<SettingFlag> flags = {
      {"--steps", "steps", "n", "stop after n updates"},
      {"--epochs", "epochs", "n", "stop after n passes over the data"},
      {"--episodes,--num-episodes", "episodes", "n", "stop after n episodes"},
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
      {"--devices,--device", "devices", "list", "auto, cpu, cpu:4, cuda:0,cuda:2"},
      {"--power", "guard.power", "limit", "how far a hot GPU's power limit may be lowered: 80%, 180W"},
      {"--guard", "guard.mode", "word", "heat and power: on, watch (only tells), off"},
      {"--strategy", "strategy", "word",
       "of web-test: agents (one a device), ddp (each on all), ensemble (three of each)"},
      {"--assignment", "assignment", "word", "of web-test: auto, balanced, specialized, hierarchical"},
      {"--together", "together", "word",
       "of web-test: agents side by side in one run: auto (where a GPU is alone), on, off"},
      {"--agents", "agents", "list", "of web-test: those to train, in this order"},
      {"--assign", "assign", "list", "of web-test: devices that agents begin on: analysis=0,evolution=1"},
      {"--env", "env.id", "name", "environment of recipe dqn: gym:CartPole-v1, my_module:MyEnv"},
      {"--num-envs", "env.count", "n", "environments played at once, over all shards"},
      {"--exact", "exact", "[word]", "refuse to start where equal bits cannot be kept (require, aim)"},
  };
  return flags;
}

}  // namespace tandem
