// tools/gpus/gpus.cc -- `tandem gpus`: the GPUs of this machine in one table, and beside another GPU with --compare.
#include "tools/gpus/gpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "command/table.h"
#include "config/visible_gpus.h"
#include "hardware/gpu_models.h"
#include "hardware/in_time.h"
#include "hardware/machine.h"
#include "hardware/nvml.h"
#include "telemetry/gpu_json.h"

namespace tandem {
namespace {

constexpr double kGiBOfMemory = 1ull << 30;

struct DriverSeen {
  NvmlStatus status;
  std::optional<std::string> driver;
  std::optional<int> cuda;
  std::vector<GpuFacts> facts;
  std::vector<GpuReading> now;
};

DriverSeen look_at_driver() {
  const auto nvml = Nvml::open();
  DriverSeen seen{nvml->status(), nvml->driver_version(), nvml->cuda_version(), nvml->facts(), {}};
  for (const GpuFacts& facts : seen.facts) seen.now.push_back(nvml->reading(facts.index));
  return seen;
}

struct Gpu {
  GpuFacts facts;
  GpuReading now;
  bool visible = true;
};

struct Totals {
  double memory_gb = 0, free_gb = 0, cores = 0, bandwidth_gb = 0, power_w = 0;
  bool memory_known = true, free_known = true, cores_known = true, bandwidth_known = true, power_known = true;
};

Totals total(const std::vector<Gpu>& gpus) {
  Totals sum;
  const auto add = [](double& to, bool& known, const auto& value, double unit) {
    if (value)
      to += static_cast<double>(*value) / unit;
    else
      known = false;
  };
  for (const Gpu& gpu : gpus) {
    add(sum.memory_gb, sum.memory_known, gpu.facts.memory_bytes, kGiBOfMemory);
    add(sum.free_gb, sum.free_known, gpu.now.memory_free_bytes, kGiBOfMemory);
    add(sum.cores, sum.cores_known, gpu.facts.cuda_cores, 1);
    add(sum.bandwidth_gb, sum.bandwidth_known, gpu.facts.bandwidth_bytes_per_s, 1e9);
    add(sum.power_w, sum.power_known, gpu.facts.power_limit_w, 1);
  }
  return sum;
}

template <class T>
std::string cell(const char* format, const std::optional<T>& value, double unit = 1) {
  return value ? fmt::format(fmt::runtime(format), static_cast<double>(*value) / unit) : "-";
}

std::string thousands(double value) {
  const std::string digits = fmt::format("{:.0f}", value);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string short_name(const GpuFacts& facts) {
  std::string name = facts.name.value_or("-");
  for (const std::string_view front : {"NVIDIA ", "GeForce "}) {
    if (name.starts_with(front)) name.erase(0, front.size());
  }
  return name;
}

std::string state_of(const Gpu& gpu) {
  if (!gpu.facts.trouble.empty()) return gpu.facts.trouble;
  if (!gpu.now.trouble.empty()) return gpu.now.trouble;
  std::string text;
  if (!gpu.visible) text = "hidden by CUDA_VISIBLE_DEVICES";
  if (gpu.facts.mig_on.value_or(false))
    text += fmt::format("{}MIG, {} parts", text.empty() ? "" : "; ", gpu.facts.mig.size());
  return text;
}

std::string gpu_table(const std::vector<Gpu>& gpus) {
  Table table({"GPU", "card", "memory", "free", "cores", "bandwidth", "power limit", "now", ""}, "<<>>>>>><");
  for (const Gpu& gpu : gpus) {
    table.row({std::to_string(gpu.facts.index), short_name(gpu.facts),
               cell("{:.1f} GiB", gpu.facts.memory_bytes, kGiBOfMemory),
               cell("{:.1f} GiB", gpu.now.memory_free_bytes, kGiBOfMemory),
               gpu.facts.cuda_cores ? thousands(*gpu.facts.cuda_cores) : "-",
               cell("{:.0f} GB/s", gpu.facts.bandwidth_bytes_per_s, 1e9), cell("{:.0f} W", gpu.facts.power_limit_w),
               cell("{:.0f} C", gpu.now.temperature_c), state_of(gpu)});
  }
  if (gpus.size() > 1) {
    const Totals sum = total(gpus);
    const auto known_or_dash = [](bool known, double value, const std::string& text) -> std::string {
      if (!known && value <= 0) return "-";  // no GPU says
      return known ? text : fmt::format("at least {}", text);
    };
    table.row({"all", fmt::format("{} GPUs", gpus.size()),
               known_or_dash(sum.memory_known, sum.memory_gb, fmt::format("{:.1f} GiB", sum.memory_gb)),
               known_or_dash(sum.free_known, sum.free_gb, fmt::format("{:.1f} GiB", sum.free_gb)),
               known_or_dash(sum.cores_known, sum.cores, thousands(sum.cores)),
               known_or_dash(sum.bandwidth_known, sum.bandwidth_gb, thousands(sum.bandwidth_gb) + " GB/s"),
               known_or_dash(sum.power_known, sum.power_w, thousands(sum.power_w) + " W"), "", ""});
  }
  return table.text();
}

std::string against(double mine, double other) {
  const double percent = 100 * (mine / other - 1);
  if (std::abs(percent) < 0.5) return "equal";
  return fmt::format("{:+.0f} %", percent);
}

// As the guides set three small GPUs beside a large one: totals, and what totals hide.
void compare(const Command& command, const std::vector<Gpu>& gpus, const std::vector<const GpuModel*>& others,
             nlohmann::json& json) {
  const Totals sum = total(gpus);
  double memory = 0, cores = 0, bandwidth = 0, power = 0, fp32 = 0, price = 0, own_fp32 = 0, own_price = 0;
  double largest = 0, other_largest = 0;
  bool priced = true, own_known = !gpus.empty(), own_priced = !gpus.empty();
  for (const GpuModel* model : others) {
    memory += model->memory_gb, cores += model->cores, bandwidth += model->bandwidth_gb_per_s, power += model->power_w;
    fp32 += model->fp32_tflops;
    price += model->price_usd.value_or(0), priced = priced && model->price_usd.has_value();
    other_largest = std::max(other_largest, model->memory_gb);
  }
  for (const Gpu& gpu : gpus) {
    largest = std::max(largest, static_cast<double>(gpu.facts.memory_bytes.value_or(0)) / kGiBOfMemory);
    const GpuModel* model = gpu.facts.name ? find_gpu_model(*gpu.facts.name) : nullptr;
    own_known = own_known && model;
    own_fp32 += model ? model->fp32_tflops : 0;
    own_priced = own_priced && model && model->price_usd;
    own_price += model ? model->price_usd.value_or(0) : 0;
  }
  const std::string name = hardware_name(others);
  json = {{"hardware", name},    {"cards", others.size()},          {"memory_gib", memory},
          {"cuda_cores", cores}, {"bandwidth_gb_per_s", bandwidth}, {"power_w", power},
          {"fp32_tflops", fp32}};
  if (priced) json["launch_price_usd"] = price;
  if (gpus.empty() || command.output.json()) return;
  Table table({"", "here", name, "here against it"}, "<>><");
  const auto row = [&](const std::string& what, bool known, double mine, double other, const char* unit) {
    table.row(
        {what, known ? thousands(mine) + unit : "-", thousands(other) + unit, known ? against(mine, other) : "-"});
  };
  row("memory, all GPUs", sum.memory_known, sum.memory_gb, memory, " GiB");
  row("memory of the largest GPU", largest > 0, largest, other_largest, " GiB");
  row("cores", sum.cores_known, sum.cores, cores, "");
  row("memory bandwidth", sum.bandwidth_known, sum.bandwidth_gb, bandwidth, " GB/s");
  row("fp32 peak (data sheets)", own_known, own_fp32, fp32, " TFLOPS");
  row("power limit", sum.power_known, sum.power_w, power, " W");
  if (priced) row("price at launch", own_priced, own_price, price, " USD");
  table.row({"jobs side by side", std::to_string(gpus.size()), std::to_string(others.size()),
             against(static_cast<double>(gpus.size()), static_cast<double>(others.size()))});
  command.output.data("\n" + table.text());
  if (gpus.size() > 1 && largest + 0.5 < other_largest)
    command.output.say("a model must fit into each GPU by itself: memory does not add up for one that does not");
  for (const GpuModel* model : others) {
    const std::string why = model->why_no_training();
    if (why.empty()) continue;
    command.output.say(fmt::format("{} is for comparison: {}", model->name, why));
    break;
  }
}

void show_cpu(const Command& command, nlohmann::json& json) {
  const MachineFacts machine = machine_facts();
  const int cores = command.context.machine.cpu_cores;
  json = {{"slots", cores}, {"logical", machine.cpu.logical}};
  if (machine.cpu.model) json["model"] = *machine.cpu.model;
  if (machine.memory.total_bytes) json["memory_bytes"] = *machine.memory.total_bytes;
  if (const auto usable = usable_memory_bytes(machine.memory)) json["memory_usable_bytes"] = *usable;
  if (command.output.json()) return;
  Table table({"device", "what", "cores", "memory", "free"}, "<<>>>");
  table.row({"cpu", machine.cpu.model.value_or("-"), std::to_string(cores),
             cell("{:.1f} GiB", machine.memory.total_bytes, kGiBOfMemory),
             cell("{:.1f} GiB", usable_memory_bytes(machine.memory), kGiBOfMemory)});
  command.output.data(table.text());
}

}  // namespace

Error driver_hangs(const NvmlStatus& status) {
  return {ExitCode::kFailed, "the NVIDIA driver does not answer",
          status.words + "; a driver hangs like this when a GPU has failed", kDriverHangsTodo};
}

int run_gpus(const Command& command) {
  std::vector<const GpuModel*> others;
  if (!command.arguments.compare.empty()) others = parse_hardware(command.arguments.compare);
  const auto seen = in_time<DriverSeen>(driver_seconds(), look_at_driver);
  if (!seen) throw driver_hangs(Nvml::no_answer(driver_seconds()));
  std::vector<Gpu> gpus;
  const std::vector<bool> visible = visible_gpus(seen->facts, std::getenv("CUDA_VISIBLE_DEVICES"));
  for (size_t i = 0; i < seen->facts.size(); ++i) gpus.push_back({seen->facts[i], seen->now[i], visible[i]});
  nlohmann::json json{{"gpus", nlohmann::json::array()}};
  for (const Gpu& gpu : gpus) {
    nlohmann::json one = to_json(gpu.facts);
    one.update(to_json(gpu.now));
    one["visible"] = gpu.visible;
    json["gpus"].push_back(one);
  }
  if (seen->driver) json["driver"] = *seen->driver;
  if (seen->cuda) json["driver_cuda"] = fmt::format("{}.{}", *seen->cuda / 1000, *seen->cuda % 1000 / 10);
  const Totals sum = total(gpus);
  json["total"] = {{"cards", gpus.size()}};
  if (sum.memory_known) json["total"]["memory_gib"] = sum.memory_gb;
  if (sum.cores_known) json["total"]["cuda_cores"] = sum.cores;
  if (sum.bandwidth_known) json["total"]["bandwidth_gb_per_s"] = sum.bandwidth_gb;
  if (sum.power_known) json["total"]["power_limit_w"] = sum.power_w;
  if (gpus.empty()) {
    json["why_none"] = seen->status.ok() ? "the driver reports no GPU" : seen->status.words;
    command.output.say(fmt::format("no NVIDIA GPU here: {}", json["why_none"].get<std::string>()));
    command.output.say(
        fmt::format("everything works on the CPU: `{} train {}`", command.context.program, command.context.example()));
  } else if (!command.output.json()) {
    command.output.data(gpu_table(gpus));
    command.output.say(
        fmt::format("driver {}, up to CUDA {}", json.value("driver", "-"), json.value("driver_cuda", "-")));
  }
  if (gpus.empty() || command.output.json()) show_cpu(command, json["cpu"]);
  if (!others.empty()) {
    compare(command, gpus, others, json["compare"]);
    if (gpus.empty() && !command.output.json())
      command.output.say(
          "there is nothing here to set beside it; `tandem plan --hardware` forecasts for other machines");
  }
  if (command.output.json()) command.output.object(json);
  return 0;
}

}  // namespace tandem
