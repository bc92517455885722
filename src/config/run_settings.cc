#include "config/run_settings.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/errors.h"
#include "config/units.h"

namespace tandem {
namespace {

constexpr int64_t kMostShards = 65535;  // a shard's number has 16 bits in the random key

Grammar duration_or_empty() {
  return {"a time such as 90s, 10m or 2h", [](const std::string& text) -> std::optional<std::string> {
            if (text.empty() || parse_duration(text).value_or(0) > 0) return std::nullopt;
            return "it is no time";
          }};
}

Grammar interval() {
  return {"a time such as 60s or 10m, a count such as \"500 steps\", auto or never",
          [](const std::string& text) -> std::optional<std::string> {
            if (parse_interval(text)) return std::nullopt;
            return "it is no interval";
          }};
}

Grammar validation_interval() {
  return {"a count such as \"500 steps\" or \"2 epochs\", auto or never",
          [](const std::string& text) -> std::optional<std::string> {
            if (parse_validation_interval(text)) return std::nullopt;
            return "it is none of these; times are no choice, since the result must not depend on the machine's speed";
          }};
}

void describe_validation(Describer& d, ValidationSettings& s) {
  d.key("validation.every", s.every, validation_interval(), "steps or epochs between validations; auto: an epoch",
        Role::kRunning);
  d.key("validation.best", s.best,
        "metric that decides which checkpoint is the best: accuracy, test/loss; empty: the recipe's first",
        Role::kRunning);
  d.key("validation.patience", s.patience, Range::at_least(0),
        "early stopping: validations without a better value before the run ends; 0: none", Role::kRunning);
  d.key("validation.min_delta", s.min_delta, Range::at_least(0), "least gain that counts as a better value",
        Role::kRunning);
}

Grammar power_or_empty() {
  return {"a share of a GPU's limit such as 80%, or watts such as 180W",
          [](const std::string& text) -> std::optional<std::string> {
            if (text.empty() || parse_power(text)) return std::nullopt;
            return "it is neither";
          }};
}

void describe_guard(Describer& d, GuardSettings& s) {
  d.key("guard.mode", s.mode, Choices{{"on", "watch", "off"}},
        "on: acts on hot GPUs; watch: only reports what is wrong; off", Role::kRunning);
  d.key("guard.target_c", s.target_c, Range::between(30, 110),
        "temperature that a hot GPU is brought back to, in Celsius", Role::kRunning);
  d.key("guard.warn_c", s.warn_c, Range::between(30, 110), "from this temperature on a warning is printed",
        Role::kRunning);
  d.key("guard.act_c", s.act_c, Range::between(30, 110),
        "from this temperature on: shards move to other GPUs, then fan, then power limit", Role::kRunning);
  d.key("guard.power", s.power, power_or_empty(),
        "lowest power limit that a hot GPU may get: 80%, 180W; empty: the limit is not touched", Role::kRunning);
  d.key("guard.fan", s.fan, "the fans of a hot GPU may be raised", Role::kRunning);
}

void describe_optimizer(Describer& d, OptimizerSettings& s) {
  d.key("optimizer.kind", s.kind, Choices{{"adam", "adamw", "sgd"}},
        "optimizer, as in torch.optim but for decay_vectors");
  d.key("optimizer.learning_rate", s.learning_rate, Range::above(0), "learning rate");
  d.key("optimizer.beta1", s.beta1, Range::from_up_to_below(0, 1), "Adam's beta1: decay rate of the mean of gradients");
  d.key("optimizer.beta2", s.beta2, Range::from_up_to_below(0, 1),
        "Adam's beta2: decay rate of the mean of squared gradients");
  d.key("optimizer.epsilon", s.epsilon, Range::above(0), "Adam's eps: added to the denominator");
  d.key("optimizer.momentum", s.momentum, Range::from_up_to_below(0, 1), "SGD's momentum");
  d.key("optimizer.nesterov", s.nesterov, "SGD with Nesterov momentum");
  d.key("optimizer.weight_decay", s.weight_decay, Range::at_least(0),
        "weight decay: L2 in adam and sgd, decoupled in adamw");
  d.key("optimizer.decay_vectors", s.decay_vectors,
        "weight decay for biases and norm weights too (torch.optim does so; off: a group without decay)");
}

void describe_schedule(Describer& d, ScheduleSettings& s) {
  d.key("schedule.kind", s.kind, Choices{{"constant", "cosine", "cosine_restarts"}}, "learning rate schedule");
  d.key("schedule.warmup_steps", s.warmup_steps, Range::at_least(0), "steps of linear warm-up from 0");
  d.key("schedule.warmup_epochs", s.warmup_epochs, Range::at_least(0),
        "the same in epochs, parts of one too; 0: warmup_steps holds", Role::kRunning);
  d.key("schedule.total_steps", s.total_steps, Range::at_least(0), "length of the cosine schedule; 0: the run's steps");
  d.key("schedule.restart_steps", s.restart_steps, Range::at_least(0), "length of the first cycle of cosine_restarts");
  d.key("schedule.restart_epochs", s.restart_epochs, Range::at_least(0),
        "the same in epochs, parts of one too; 0: restart_steps holds", Role::kRunning);
  d.key("schedule.restart_factor", s.restart_factor, Range::at_least(1),
        "each cycle is this many times as long as the one before");
  d.key("schedule.min_factor", s.min_factor, Range::between(0, 1),
        "lowest learning rate, as a fraction of learning_rate");
  d.key("schedule.batch_scaling", s.batch_scaling, Choices{{"none", "linear", "sqrt"}},
        "scale the learning rate by batch_size / base_batch");
  d.key("schedule.base_batch", s.base_batch, Range::at_least(0), "batch size that learning_rate was tuned for");
}

}  // namespace

void RecipeSettings::describe(Describer& d) {
  d.key("seed", seed, Range::at_least(0), "seed of all random numbers");
  d.key("steps", steps, Range::at_least(0), "stop after this many steps, skipped ones included; 0: no such limit",
        Role::kRunning);
  d.key("epochs", epochs, Range::at_least(0), "stop after this many epochs; 0: no such limit", Role::kRunning);
  d.key("episodes", episodes, Range::at_least(0), "stop after this many episodes; 0: no such limit", Role::kRunning);
  d.key("iterations", iterations, Range::at_least(0), "another name for steps; 0: no such limit", Role::kRunning);
  d.key("max_time", max_time, duration_or_empty(), "stop after this wall time (90s, 10m, 2h)", Role::kRunning);
  d.key("shards", shards, OrWord{"devices", &shards_from_devices, Range::between(1, kMostShards)},
        "virtual workers that share each batch, however many devices there are; \"devices\": one per device");
  d.key("batch_size", batch_size, Range::at_least(1),
        "global batch size, samples of one update; per device if shards is \"devices\"");
  d.key("accumulation", accumulation, Range::at_least(1),
        "gradient accumulation: micro-batches per update in each shard");
  d.key("precision", precision, Choices{{"fp32", "tf32", "bf16", "fp16"}},
        "precision of forward and backward (mixed precision: bf16, fp16)");
  d.key("exact", exact, Choices{{"aim", "require"}},
        "aim: warn, require: refuse to start, where the result could depend on the machines", Role::kRunning);
  d.key("devices", devices, "devices to train on, one worker each: auto, cpu:4, cuda:0,cuda:2", Role::kRunning);
  d.key("memory_fraction", memory_fraction, Range::between(0.01, 1),
        "largest fraction of a GPU's memory that a worker may allocate", Role::kRunning);
  d.key("shards_per_pass", shards_per_pass, Range::at_least(0),
        "most shards that a worker runs in one pass; 0: as many as memory allows", Role::kRunning);
  d.key("clip_norm", clip_norm, Range::at_least(0), "clip the gradient's norm to this; 0: no clipping");
  d.key("sync_bn", sync_bn, "synchronized batch norm: statistics over the global batch, not over each shard");
  d.key("bn_momentum", bn_momentum, Range::between(0, 1), "momentum of batch norm's running statistics");
  describe_optimizer(d, optimizer);
  describe_schedule(d, schedule);
  d.key("checkpoint.every", checkpoint.every, interval(), "time or steps between checkpoints", Role::kRunning);
  d.key("checkpoint.keep", checkpoint.keep, Range::at_least(2), "newest checkpoints to keep", Role::kRunning);
  describe_validation(d, validation);
  d.key("loader.threads", loader.threads, Range::between(-1, 1024),
        "data loader threads per worker; -1: by device and cores", Role::kRunning);
  d.key("loader.prefetch", loader.prefetch, Range::between(-1, 1024), "batches to prefetch; -1: two per thread",
        Role::kRunning);
  d.key("amp.initial_scale", amp.initial_scale, Range::above(0), "initial loss scale for fp16");
  d.key("amp.growth_steps", amp.growth_steps, Range::at_least(1),
        "steps without overflow before the loss scale doubles");
  d.key("nan.patience", nan.patience, Range::at_least(1),
        "consecutive steps with NaN before the weights are rolled back");
  d.key("nan.rollback_every", nan.rollback_every, Range::at_least(1), "steps between the states kept for rolling back");
  d.key("nan.max_rollbacks", nan.max_rollbacks, Range::at_least(0), "roll-backs before the run stops with exit code 7");
  describe_guard(d, guard);
  d.key("price_kwh", price_kwh, Range::at_least(0),
        "price of a kWh of electricity, for the cost of a run; 0: not known", Role::kRunning);
  d.key("currency", currency, "currency of price_kwh", Role::kRunning);
}

void RecipeSettings::check() const {
  const std::vector<std::string> known = units();
  for (const auto& [unit, count] :
       {std::pair<std::string, int64_t>{"epochs", epochs}, {"episodes", episodes}, {"iterations", iterations}}) {
    if (count == 0 || std::find(known.begin(), known.end(), unit) != known.end()) continue;
    throw ConfigError(
        fmt::format("this recipe has no {}", unit), "its stop rule counts other things",
        fmt::format("use --steps{}{} or --max-time", known.empty() ? "" : ", --", fmt::join(known, ", --")));
  }
  const int64_t unit = shards * accumulation;
  if (batch_size % unit != 0) {
    const int64_t below = batch_size / unit * unit;
    const int64_t first = below > 0 ? below : unit, second = first + unit;
    const std::string cut = accumulation == 1 ? fmt::format("{} shards", shards)
                                              : fmt::format("{} shards x {} micro-batches", shards, accumulation);
    throw ConfigError(
        fmt::format("a batch of {} does not divide by {}", batch_size, cut),
        "every shard runs the same fixed number of samples, so that the result never depends on the machines",
        fmt::format("set batch_size to {} or {}", first, second));
  }
  if (schedule.kind == "cosine_restarts" && schedule.restart_steps == 0 && schedule.restart_epochs == 0) {
    throw ConfigError("schedule.kind is cosine_restarts, but schedule.restart_steps is 0", "a cycle needs a length",
                      "set schedule.restart_steps, for example 1000, or schedule.restart_epochs");
  }
  if (schedule.total_steps > 0 && schedule.warmup_steps >= schedule.total_steps) {
    throw ConfigError(fmt::format("schedule.warmup_steps is {}, schedule.total_steps is {}", schedule.warmup_steps,
                                  schedule.total_steps),
                      "the schedule would end before its warm-up does", "make the warm-up shorter than the whole");
  }
  if (schedule.batch_scaling != "none" && schedule.base_batch == 0) {
    throw ConfigError(fmt::format("schedule.batch_scaling is {}, but schedule.base_batch is 0", schedule.batch_scaling),
                      "the learning rate is scaled by batch_size / base_batch",
                      "set schedule.base_batch to the batch size that learning_rate was tuned for");
  }
  if (!(guard.target_c < guard.warn_c && guard.warn_c < guard.act_c)) {
    throw ConfigError(fmt::format("guard.target_c, warn_c and act_c are {:g}, {:g} and {:g}", guard.target_c,
                                  guard.warn_c, guard.act_c),
                      "a GPU is cool, then warm, then hot", "set them in this order, as 80, 85 and 90");
  }
  if (optimizer.nesterov && (optimizer.kind != "sgd" || optimizer.momentum == 0)) {
    throw ConfigError("optimizer.nesterov is on without SGD's momentum",
                      "it is a form of momentum, which only sgd has here",
                      "set optimizer.kind = \"sgd\" and optimizer.momentum = 0.9, or nesterov = false");
  }
}

}  // namespace tandem
