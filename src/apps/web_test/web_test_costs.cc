#include "apps/web_test/web_test_costs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/errors.h"
#include "forecast/pauses.h"
#include "forecast/set_costs.h"
#include "jobs/estimate.h"
#include "world/web_product.h"

namespace tandem {
namespace {

constexpr double kBytesOfDecision = 545;   // in the replay: a default run saves 545 MB of a million (docs/web-test.md)
constexpr double kStatesOfWeight = 4 * 4;  // bytes: weight, two moments of Adam, target network
constexpr double kAttention = 3.5;         // times the step, measured on cores

double weights_of(const WebAgentSettings& settings) {
  double weights = 0, width = kObservation;
  for (const int64_t hidden : settings.net.hidden) {
    weights += (width + 3) * static_cast<double>(hidden);  // bias and layer norm
    width = static_cast<double>(hidden);
  }
  const auto head = static_cast<double>(settings.net.head);
  return weights + 2 * (width + 1) * head + (head + 1) * (1 + kActions);
}

double saved_bytes(const JobShape& shape, const WebAgentSettings& settings) {
  return shape.replicated_bytes() + shape.shard_bytes * static_cast<double>(settings.shards);
}

// Of several agents in a run that is there: the mean of them. Nothing unless each was tried.
std::optional<RunCost> cost_by_trials(const WebAgentSettings& settings, const std::string& model,
                                      const SetKnown& known) {
  const auto by_agent = known.steps.find(model);
  if (by_agent == known.steps.end()) return std::nullopt;
  RunCost mean;
  const std::vector<std::string> agents = settings.agents();
  for (const std::string& agent : agents) {
    const auto tried = by_agent->second.find(agent);
    if (tried == by_agent->second.end()) return std::nullopt;
    const RunCost part = tried->second.scaled(1 / static_cast<double>(agents.size()));
    mean = {mean.fixed + part.fixed, mean.divided + part.divided, mean.more + part.more};
  }
  return mean;
}

}  // namespace

JobShape shape_of_agent(const WebAgentSettings& settings) {
  JobShape shape;
  const double weights = weights_of(settings);
  shape.total_steps = settings.steps;
  shape.weights_bytes = 4 * weights;
  shape.optimizer_bytes = 8 * weights;
  shape.other_bytes = (kStatesOfWeight - 12) * weights;
  shape.shard_bytes = kBytesOfDecision * static_cast<double>(settings.capacity) /
                      static_cast<double>(std::max<int64_t>(1, settings.shards));
  shape.combine_floats = weights;
  return shape;
}

RunCost agent_cost(const WebAgentSettings& settings, const DeviceSpec& gpu, const SetKnown& known) {
  const std::string model = Estimate::model_of(gpu);
  const auto batch = settings.batch_size;
  const StepShares book = shares_by_book(gpu_or_small(gpu.gpu.name), "web-agent", shape_of_agent(settings), batch,
                                         static_cast<double>(batch), settings.precision);
  RunCost cost = cost_of(book).scaled(settings.net.attention ? kAttention : 1);
  WebAgentSettings one = settings;
  one.agent = WebAgentSettings::all_agents().front();
  if (const auto tried = cost_by_trials(settings, model, known))
    cost = *tried;
  else if (const auto earlier = known.speeds.find(model); earlier != known.speeds.end())
    cost = cost_at(flops_of_step(one, true) / earlier->second, book);
  return cost.scaled(1 / gpu.speed);
}

std::vector<SetDevice> set_devices(const std::vector<DeviceSpec>& gpus, const WebTestSettings& settings,
                                   const SetKnown& known) {
  std::vector<SetDevice> devices;
  std::vector<std::pair<std::string, double>> models;
  for (const DeviceSpec& gpu : gpus) {
    const std::pair model(gpu.gpu.name, gpu.speed);
    auto at = std::ranges::find(models, model);
    if (at == models.end()) at = models.insert(models.end(), model);
    const auto entry = known.memory.find(gpu.gpu.uuid);
    const SetKnown::Memory memory = entry == known.memory.end() ? SetKnown::Memory{} : entry->second;
    devices.push_back(set_device(gpu.name(), gpu_or_small(gpu.gpu.name), static_cast<int>(at - models.begin()),
                                 settings.memory_fraction, memory));
    if (memory.total <= 0 && !find_gpu_model(gpu.gpu.name)) devices.back().memory_bytes = 0;  // nobody says
    if (known.start_seconds > 0 && known.speeds.contains(Estimate::model_of(gpu)))  // else it was of other devices
      devices.back().start_seconds = known.start_seconds;
  }
  return devices;
}

SetUnit unit_of(const AgentJob& job, const WebAgentSettings& settings, double steps,
                const std::vector<DeviceSpec>& gpus, const SetKnown& known) {
  const JobShape shape = shape_of_agent(settings);
  SetUnit unit{.name = job.name(),
               .agents = static_cast<int>(job.agents.size()),
               .steps = steps,
               .shards = static_cast<int>(settings.shards),
               .pin = job.pin,
               .costs = {},
               .save_seconds = saved_bytes(shape, settings) / kSaveBytesPerSecond,
               .memory_bytes = saved_bytes(shape, settings),
               .combine_floats = shape.combine_floats};
  for (const DeviceSpec& gpu : gpus) unit.costs.push_back(agent_cost(settings, gpu, known));
  return unit;
}

bool can_share(const WebTestSettings& settings) {
  if (settings.together == "off") return false;
  const bool begun_with = !settings.experience.files.empty() || !settings.from.empty();
  if (settings.together == "on") {
    if (begun_with)
      throw ConfigError("--together on, with weights or experience to begin with", "these belong to one agent",
                        "leave --together out: each agent has a run of its own then");
    if (settings.precision == "fp16")
      throw ConfigError("--together on in fp16", "the loss scale of one agent would be the other's",
                        "use --precision bf16 or fp32, or leave --together out");
    return true;
  }
  const bool own_kernels = settings.precision != "fp16" && !settings.net.attention;
  return own_kernels && !begun_with && settings.strategy != "ddp";
}

bool plans_by_forecast(const WebTestSettings& settings, const std::vector<DeviceSpec>& devices) {
  std::set<int> gpus;
  for (const DeviceSpec& device : devices)
    if (device.kind == DeviceSpec::Kind::kCuda) gpus.insert(device.index);
  return gpus.size() == devices.size() && settings.strategy != "ddp";
}

void refuse_what_fits_nowhere(const SetQuestion& question, double memory_fraction) {
  const int unit = fits_nowhere(question);
  if (unit < 0) return;
  const SetUnit& one = question.units[static_cast<size_t>(unit)];
  std::vector<std::string> room;
  for (size_t d = 0; d < question.devices.size(); ++d)
    if (one.pin < 0 || std::cmp_equal(one.pin, d))
      room.push_back(fmt::format("{} has {:.1f} GB", question.devices[d].name, question.devices[d].memory_bytes / 1e9));
  const double need = one.agents * one.memory_bytes;
  throw ConfigError(
      fmt::format("{} does not fit on {}", one.name, room.size() == 1 ? "the GPU" : "any of the GPUs"),
      fmt::format("its replay, weights and optimizer take {:.1f} GB; {} for it, by memory_fraction {} and what others "
                  "leave free",
                  need / 1e9, fmt::join(room, ", "), memory_fraction),
      "make the replay smaller (--set capacity=...), end what else uses the GPU, or train on --devices cpu");
}

std::string memory_words(const SetQuestion& question) {
  std::vector<std::string> words;
  for (size_t d = 0; d < question.devices.size(); ++d) {
    int alike = 0, fit = 0;  // of the largest class
    for (const SetUnit& one : question.units) {
      int agents = 0, most = 0;
      for (const SetUnit& other : question.units)
        if (&other == &one || (one.alike >= 0 && other.alike == one.alike)) agents += other.agents;
      while (most < agents && fits(question, one, most + 1, static_cast<int>(d))) ++most;
      if (agents > alike) alike = agents, fit = most;
    }
    if (fit < alike && question.together != SetQuestion::Together::kOff)
      words.push_back(fmt::format("{} {} of {} agents ({:.1f} GB)", question.devices[d].name,
                                  fit == 0 ? std::string("none") : fmt::format("{}", fit), alike,
                                  question.devices[d].memory_bytes / 1e9));
  }
  return words.empty() ? "" : fmt::format("room in one run for: {}", fmt::join(words, ", "));
}

bool all_tried_on(const std::vector<DeviceSpec>& gpus, const SetKnown& known, const std::vector<std::string>& agents) {
  return std::ranges::all_of(gpus, [&](const DeviceSpec& gpu) {
    const auto by_agent = known.steps.find(Estimate::model_of(gpu));
    return by_agent != known.steps.end() &&
           std::ranges::all_of(agents, [&](const std::string& agent) { return by_agent->second.contains(agent); });
  });
}

std::string source_of_costs(const std::vector<DeviceSpec>& gpus, const SetKnown& known) {
  bool trials = true, runs = true;
  std::set<std::string> strangers;
  for (const DeviceSpec& gpu : gpus) {
    const std::string model = Estimate::model_of(gpu);
    const bool tried = known.steps.contains(model), ran = tried || known.speeds.contains(model);
    trials = trials && tried;
    runs = runs && ran;
    if (!ran && !find_gpu_model(gpu.gpu.name)) strangers.insert(model);
  }
  std::string source = trials ? "trials of `plan` on these GPUs"
                       : runs ? "earlier runs on these GPUs"
                              : "the GPUs' data sheets";
  for (const std::string& model : strangers)
    source += fmt::format("; {} is in no book and taken as an {}", model, kGpuOfNoBook);
  return source;
}

}  // namespace tandem
