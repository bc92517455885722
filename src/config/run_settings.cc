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

Grammar power_or_empty() {
  return {"a share of a GPU's limit such as 80%, or watts such as 180W",
          [](const std::string& text) -> std::optional<std::string> {
            if (text.empty() || parse_power(text)) return std::nullopt;
            return "it is neither";
          }};
}

void describe_guard(Describer& d, GuardSettings& s) {
  d.key("guard.mode", s.mode, Choices{{"on", "watch", "off"}},
        "watch: names what is wrong with a GPU and changes nothing", Role::kRunning);
  d.key("guard.target_c", s.target_c, Range::between(30, 110), "a GPU is cool enough at this", Role::kRunning);
  d.key("guard.warn_c", s.warn_c, Range::between(30, 110), "a GPU is warm: it is told", Role::kRunning);
  d.key("guard.act_c", s.act_c, Range::between(30, 110), "a GPU is hot: shards move away, then fan, then power",
        Role::kRunning);
  d.key("guard.power", s.power, power_or_empty(),
        "how far a hot GPU's power limit may be lowered: 80%, 180W; empty: not", Role::kRunning);
  d.key("guard.fan", s.fan, "a hot GPU's fans may be raised", Role::kRunning);
}

void describe_optimizer(Describer& d, OptimizerSettings& s) {
  d.key("optimizer.kind", s.kind, Choices{{"adam", "adamw", "sgd"}}, "rule that turns a gradient into an update");
  d.key("optimizer.learning_rate", s.learning_rate, Range::above(0), "size of a step");
  d.key("optimizer.beta1", s.beta1, Range::from_up_to_below(0, 1), "memory of Adam's mean");
  d.key("optimizer.beta2", s.beta2, Range::from_up_to_below(0, 1), "memory of Adam's square");
  d.key("optimizer.epsilon", s.epsilon, Range::above(0), "keeps Adam from dividing by 0");
  d.key("optimizer.momentum", s.momentum, Range::from_up_to_below(0, 1), "momentum of SGD");
  d.key("optimizer.nesterov", s.nesterov, "Nesterov's form of the momentum");
  d.key("optimizer.weight_decay", s.weight_decay, Range::at_least(0), "pull of the weights towards 0");
  d.key("optimizer.decay_vectors", s.decay_vectors, "decay biases and norm weights too");
}

void describe_schedule(Describer& d, ScheduleSettings& s) {
  d.key("schedule.kind", s.kind, Choices{{"constant", "cosine", "cosine_restarts"}}, "course of the learning rate");
  d.key("schedule.warmup_steps", s.warmup_steps, Range::at_least(0), "steps over which the rate rises from 0");
  d.key("schedule.total_steps", s.total_steps, Range::at_least(0),
        "steps until the end of the cosine; 0: the run's steps");
  d.key("schedule.restart_steps", s.restart_steps, Range::at_least(0), "length of the first cycle of cosine_restarts");
  d.key("schedule.restart_factor", s.restart_factor, Range::at_least(1),
        "each cycle is this many times the one before");
  d.key("schedule.min_factor", s.min_factor, Range::between(0, 1), "lowest rate, as a share of learning_rate");
  d.key("schedule.batch_scaling", s.batch_scaling, Choices{{"none", "linear", "sqrt"}},
        "how the rate grows with batch_size over base_batch");
  d.key("schedule.base_batch", s.base_batch, Range::at_least(0), "batch that learning_rate was found with");
}

}  // namespace

void RecipeSettings::describe(Describer& d) {
  d.key("seed", seed, Range::at_least(0), "start of every random stream");
  d.key("steps", steps, Range::at_least(0), "stop after this many updates; 0: no such limit", Role::kRunning);
  d.key("epochs", epochs, Range::at_least(0), "stop after this many passes over the data; 0: no such limit",
        Role::kRunning);
  d.key("episodes", episodes, Range::at_least(0), "stop after this many episodes; 0: no such limit", Role::kRunning);
  d.key("iterations", iterations, Range::at_least(0), "stop after this many iterations; 0: no such limit",
        Role::kRunning);
  d.key("max_time", max_time, duration_or_empty(), "stop after this time (90s, 10m, 2h)", Role::kRunning);
  d.key("shards", shards, OrWord{"devices", &shards_from_devices, Range::between(1, kMostShards)},
        "fixed pieces a job's work is cut into; \"devices\": as many as devices at the start");
  d.key("batch_size", batch_size, Range::at_least(1),
        "samples of one update of the job; per device if shards is \"devices\"");
  d.key("accumulation", accumulation, Range::at_least(1), "pieces in which a shard's slice runs, one after the other");
  d.key("precision", precision, Choices{{"fp32", "tf32", "bf16", "fp16"}}, "number format of forward and backward");
  d.key("exact", exact, Choices{{"aim", "require"}}, "require: refuse to start where equal bits cannot be kept",
        Role::kRunning);
  d.key("devices", devices, "workers: auto, cpu:4, cuda:0,cuda:2", Role::kRunning);
  d.key("memory_fraction", memory_fraction, Range::between(0.01, 1), "most of a GPU's memory that a worker takes",
        Role::kRunning);
  d.key("clip_norm", clip_norm, Range::at_least(0), "longest gradient; 0: no clipping");
  d.key("sync_bn", sync_bn, "batch norm over all shards, not over each");
  d.key("bn_momentum", bn_momentum, Range::between(0, 1), "weight of a new batch in the running statistics");
  describe_optimizer(d, optimizer);
  describe_schedule(d, schedule);
  d.key("checkpoint.every", checkpoint.every, interval(), "time or steps between checkpoints", Role::kRunning);
  d.key("checkpoint.keep", checkpoint.keep, Range::at_least(2), "checkpoints kept", Role::kRunning);
  d.key("loader.threads", loader.threads, Range::between(-1, 1024),
        "threads that prepare batches; -1: what suits the device", Role::kRunning);
  d.key("loader.prefetch", loader.prefetch, Range::between(-1, 1024), "batches prepared ahead; -1: two to a thread",
        Role::kRunning);
  d.key("amp.initial_scale", amp.initial_scale, Range::above(0), "first loss scale of fp16");
  d.key("amp.growth_steps", amp.growth_steps, Range::at_least(1), "good steps before the loss scale doubles");
  d.key("nan.patience", nan.patience, Range::at_least(1), "steps with NaN in a row before a roll-back");
  d.key("nan.rollback_every", nan.rollback_every, Range::at_least(1), "steps between the states kept for a roll-back");
  d.key("nan.max_rollbacks", nan.max_rollbacks, Range::at_least(0), "roll-backs before the run stops with code 7");
  describe_guard(d, guard);
  d.key("price_kwh", price_kwh, Range::at_least(0), "price of a kWh, for the cost of a run; 0: not known",
        Role::kRunning);
  d.key("currency", currency, "what price_kwh is counted in", Role::kRunning);
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
                                              : fmt::format("{} shards x {} pieces", shards, accumulation);
    throw ConfigError(
        fmt::format("a batch of {} does not divide by {}", batch_size, cut),
        "every shard runs the same fixed number of samples, so that the result never depends on the machines",
        fmt::format("set batch_size to {} or {}", first, second));
  }
  if (schedule.kind == "cosine_restarts" && schedule.restart_steps == 0) {
    throw ConfigError("schedule.kind is cosine_restarts, but schedule.restart_steps is 0", "a cycle needs a length",
                      "set schedule.restart_steps, for example 1000");
  }
  if (schedule.total_steps > 0 && schedule.warmup_steps >= schedule.total_steps) {
    throw ConfigError(fmt::format("schedule.warmup_steps is {}, schedule.total_steps is {}", schedule.warmup_steps,
                                  schedule.total_steps),
                      "the schedule would end before its warm-up does", "make the warm-up shorter than the whole");
  }
  if (schedule.batch_scaling != "none" && schedule.base_batch == 0) {
    throw ConfigError(fmt::format("schedule.batch_scaling is {}, but schedule.base_batch is 0", schedule.batch_scaling),
                      "the rate is scaled by batch_size / base_batch",
                      "set schedule.base_batch to the batch that learning_rate was found with");
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
