// tools/plan/plan.cc -- `tandem plan RECIPE`: what a training will take on 1, 2, ... devices, here or elsewhere: steps
// a second, time, memory, energy and money.
#include "tools/plan/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <utility>

#include "base/errors.h"
#include "command/disk_need.h"
#include "command/out_file.h"
#include "command/start.h"
#include "command/trial_run.h"
#include "config/spelling.h"
#include "forecast/hardware_model.h"
#include "hardware/machine.h"
#include "hardware/nvml.h"
#include "jobs/job_set.h"
#include "telemetry/atomic_file.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr size_t kOutcomes = 5;

std::vector<std::string> precisions_of(const Arguments& arguments, const RecipeSettings& settings, bool gpus) {
  static const std::vector<std::string> kAll{"fp32", "tf32", "bf16", "fp16"};
  std::vector<std::string> list;
  std::string_view text = arguments.plan.precision;
  if (text == "all") {
    for (const std::string& one : kAll)
      if (gpus || one != "tf32") list.push_back(one);
    return list;
  }
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string one(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
    if (std::ranges::find(kAll, one) == kAll.end()) {
      const std::string near = nearest_word(one, kAll);
      throw ConfigError(fmt::format("--precision {}: there is no such precision", printable(one)),
                        "they are fp32, tf32 (on GPUs), bf16 and fp16; or all",
                        near.empty() ? "name one or several with commas" : fmt::format("did you mean {}?", near));
    }
    if (one == "tf32" && !gpus)
      throw ConfigError("--precision tf32 on a CPU", "TF32 is a number format of NVIDIA's GPUs",
                        "leave it out, or name GPUs with --devices or --hardware");
    if (std::ranges::find(list, one) == list.end()) list.push_back(one);
  }
  if (list.empty()) list.push_back(settings.precision);
  return list;
}

// The recipe's own batch first, then what was asked for, or its half, double and fourfold.
std::vector<int64_t> batches_of(const Arguments& arguments, const RecipeSettings& settings) {
  const int64_t own = settings.batch_size;
  if (!arguments.plan.batch.empty()) return parse_batches(arguments.plan.batch);
  std::vector<int64_t> batches{own, 2 * own};
  return batches;
}

}  // namespace

std::vector<PlanDevice> devices_here(const std::vector<DeviceSpec>& specs) {
  std::vector<PlanDevice> devices;
  std::vector<GpuFacts> facts;
  if (std::ranges::any_of(specs, [](const DeviceSpec& s) { return s.kind == DeviceSpec::Kind::kCuda; }))
    facts = Nvml::open_in_time()->facts();
  for (const DeviceSpec& spec : specs) {
    PlanDevice device{forecast_device(spec), spec.name()};
    if (spec.kind == DeviceSpec::Kind::kCuda) device.gpu = spec.gpu.uuid.empty() ? spec.name() : spec.gpu.uuid;
    for (const GpuFacts& gpu : facts)
      if (spec.kind == DeviceSpec::Kind::kCuda && gpu.uuid && *gpu.uuid == spec.gpu.uuid) {
        device.memory_bytes = static_cast<double>(gpu.memory_bytes.value_or(0));
        device.watts = gpu.power_limit_w.value_or(gpu.power_default_w.value_or(0));
      }
    if (spec.kind == DeviceSpec::Kind::kCuda && device.watts == 0)
      if (const GpuModel* book = find_gpu_model(spec.gpu.name)) device.watts = book->power_w;
    devices.push_back(std::move(device));
  }
  return devices;
}

// The GPUs of each device by the book; empty where one is in no book.
std::vector<const GpuModel*> gpus_of(const std::vector<PlanDevice>& devices) {
  std::vector<const GpuModel*> gpus;
  for (const PlanDevice& device : devices) {
    const GpuModel* model = device.device.model == "cpu" ? nullptr : find_gpu_model(device.device.model);
    if (!model) return {};
    gpus.push_back(model);
  }
  return gpus;
}

std::vector<const GpuModel*> gpus_used(const std::vector<PlanDevice>& devices, const std::vector<const GpuModel*>& gpus,
                                       const std::vector<size_t>& used) {
  std::vector<const GpuModel*> some;
  std::set<std::string> seen;
  for (const size_t i : used) {
    if (i >= gpus.size()) return {};
    if (devices[i].gpu.empty() || seen.insert(devices[i].gpu).second) some.push_back(gpus[i]);
  }
  return some;
}

// An offer of the same GPUs: exactly as many, else the cheapest for each GPU.
std::optional<CloudPrice> rent_of(const Prices& prices, std::vector<const GpuModel*> gpus) {
  if (gpus.empty()) return std::nullopt;
  std::sort(gpus.begin(), gpus.end());
  std::optional<CloudPrice> best;
  bool exact = false;
  for (const CloudPrice& offer : prices.cloud) {
    std::vector<const GpuModel*> offered = parse_hardware(offer.hardware);
    std::sort(offered.begin(), offered.end());
    if (offered == gpus) {
      if (!exact || offer.per_hour < best->per_hour) best = offer;
      exact = true;
      continue;
    }
    if (exact || offered.front() != offered.back() || gpus.front() != gpus.back() || offered.front() != gpus.front())
      continue;
    const double each = offer.per_hour / static_cast<double>(offered.size());
    CloudPrice part = offer;
    part.per_hour = each * static_cast<double>(gpus.size());
    if (!best || part.per_hour < best->per_hour) best = part;
  }
  return best;
}

double watts_of_one(const Calibration& calibration) {
  double watts = 0;
  for (const Trial& trial : calibration.trials)
    if (trial.devices.size() == 1) watts = std::max(watts, trial.power_w);
  return watts;
}

namespace {

// By the user's list, else by the prices at launch, which are in dollars.
void add_buying(PlanReport& report, std::vector<const GpuModel*> gpus) {
  if (gpus.empty()) return;
  std::vector<const GpuModel*> sorted = gpus;
  std::sort(sorted.begin(), sorted.end());
  for (const BuyPrice& offer : report.prices.buy) {
    std::vector<const GpuModel*> offered = parse_hardware(offer.hardware);
    std::sort(offered.begin(), offered.end());
    if (offered != sorted) continue;
    report.buy_price = offer.price;
    report.buy_source = offer.name;
  }
  if (report.buy_price) return;
  double sum = 0;
  for (const GpuModel* model : gpus) {
    double each = report.prices.currency == "USD" ? model->price_usd.value_or(-1) : -1;
    for (const BuyPrice& offer : report.prices.buy) {
      const std::vector<const GpuModel*> offered = parse_hardware(offer.hardware);
      if (offered.size() == 1 && offered[0] == model) each = offer.price;
    }
    if (each < 0) return;
    sum += each;
  }
  report.buy_price = sum;
  report.buy_source = "prices of the GPUs alone, of the list or at launch";
}

}  // namespace

void add_power(PlanReport& report, const std::vector<const GpuModel*>& gpus, double measured_w) {
  std::vector<double> watts;
  for (const size_t i : different_gpus(report.devices)) watts.push_back(report.devices[i].watts);
  const double busy = static_cast<double>(report.devices.size()) / std::max(1, report.calibration.cores);
  report.power = power_of(watts, measured_w * static_cast<double>(watts.size()), busy);
  report.running = running_cost(report.power.typical_w, report.prices.kwh);
  std::vector<size_t> all(report.devices.size());
  std::iota(all.begin(), all.end(), size_t{0});
  const std::vector<const GpuModel*> owned = gpus_used(report.devices, gpus, all);
  report.rent = rent_of(report.prices, owned);
  add_buying(report, owned);
  if (report.buy_price && report.rent)
    report.break_even_h = break_even_hours(*report.buy_price, report.rent->per_hour, report.running.per_hour);
}

namespace {

std::string shell_word(const std::string& text) {
  constexpr std::string_view kPlain = "=.,:/@+-_";
  if (std::ranges::all_of(text, [&](unsigned char c) {
        return std::isalnum(c) || kPlain.find(static_cast<char>(c)) != std::string_view::npos;
      }))
    return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace

std::string command_to_copy(const Command& command, const std::string& devices, int64_t batch,
                            const std::string& precision) {
  std::string text = fmt::format("{} train {}", command.context.program, shell_word(command.subject()));
  if (!devices.empty()) text += fmt::format(" --devices {}", devices);
  if (batch > 0) text += fmt::format(" --batch-size {}", batch);
  if (!precision.empty()) text += fmt::format(" --precision {}", precision);
  for (const Override& given : command.arguments.overrides)
    if (!(given.key == "devices" && !devices.empty()) && !(given.key == "batch_size" && batch > 0) &&
        !(given.key == "precision" && !precision.empty()))
      text += fmt::format(" --set {}", shell_word(fmt::format("{}={}", given.key, given.value)));
  return text;
}

namespace {

int make_prices(const Command& command) {
  const fs::path path = command.arguments.plan.prices ? fs::path(*command.arguments.plan.prices) : prices_path();
  if (path.empty())
    throw ConfigError("there is no place for prices", "neither HOME nor XDG_CONFIG_HOME is set",
                      "name a file: --make-prices --prices prices.toml");
  std::error_code none;
  if (fs::exists(path, none))
    throw ConfigError(fmt::format("{} is there already", path.string()), "your prices would be lost",
                      "edit it, or name another file with --prices");
  fs::create_directories(path.parent_path(), none);
  try {
    write_file_atomically(path, example_prices());
  } catch (const IoError& error) {
    throw ConfigError(error.what(), error.why(), "choose a file in a folder that is writable with --prices");
  }
  if (command.output.json())
    command.output.object({{"prices", path.string()}});
  else
    command.output.data(path.string() + "\n");
  command.output.say("the guides' prices as examples, each with its source: edit them");
  return 0;
}

void show_plan(const Command& command, const PlanReport& report) {
  const std::string& csv = command.arguments.csv;
  if (csv == "-") {
    command.output.data(plan_csv(report));
    return;
  }
  if (!csv.empty()) write_out_file(csv, plan_csv(report), "--csv");
  if (command.output.json())
    command.output.object(plan_json(report));
  else
    command.output.data(plan_text(report));
}

// The price of a kWh: the flag, else `price_kwh` that runs count with (docs/guard.md), else the list's.
void use_local_price(const Arguments& arguments, const RecipeSettings& settings, PlanReport& report) {
  Prices& prices = report.prices;
  if (arguments.plan.price_kwh) {
    prices.kwh = *arguments.plan.price_kwh;
    prices.kwh_source = "--price-kwh";
  } else if (settings.price_kwh > 0 && settings.currency == prices.currency) {
    prices.kwh = settings.price_kwh;
    prices.kwh_source = "price_kwh of the settings";
  } else if (settings.price_kwh > 0) {
    report.notes.push_back(
        fmt::format("price_kwh of the settings is in {}, the price list in {}: the list's price of "
                    "electricity was taken",
                    settings.currency, prices.currency));
  }
}

// A shard is never split, so there is no run on more devices than shards.
void check_counts(const std::vector<int>& counts, int64_t shards, const std::string& recipe) {
  if (counts.empty() || counts.back() <= shards) return;
  throw ConfigError(fmt::format("--gpus {}: {} has {} shards", counts.back(), recipe, shards),
                    "each device computes at least one of them",
                    fmt::format("ask for at most {}, or --set shards={}", shards, counts.back()));
}

int most_workers(int devices, const RecipeSettings& settings) {
  if (settings.shards_from_devices) return devices;
  return static_cast<int>(std::min<int64_t>(devices, settings.shards));
}

// But for those that could not be trained here, beyond the ones that could: there was a warning.
// A trial of such a batch would take hours or all memory, and smaller ones tell nothing of it.
void refuse_endless_batches(const std::vector<int64_t>& batches, int64_t own, const std::string& recipe) {
  constexpr int64_t kMostTimes = 1000;
  for (const int64_t batch : batches)
    if (batch / kMostTimes > own)
      throw ConfigError(
          fmt::format("--batch {}: too large to forecast", batch),
          fmt::format("it is {} times the {} of {}: no trial on this machine can tell of it", batch / own, own, recipe),
          fmt::format("name a batch up to {}, or set another batch_size", kMostTimes * own));
}

std::vector<int64_t> batches_known(std::vector<int64_t> batches, const Calibration& calibration,
                                   const std::string& precision) {
  int64_t smallest = 0, largest = 0;
  for (const Trial& trial : calibration.trials) {
    if (trial.precision != precision || trial.devices.size() != 1) continue;
    smallest = largest == 0 ? trial.batch : std::min(smallest, trial.batch);
    largest = std::max(largest, trial.batch);
  }
  std::erase_if(batches, [&](int64_t batch) { return batch < smallest || batch > largest; });
  return batches;
}

// One model, on the devices at hand or on hardware that is not here.
void plan_job(const Command& command, ResolvedRecipe& recipe, PlanReport& report,
              const std::vector<const GpuModel*>& elsewhere) {
  const Arguments& arguments = command.arguments;
  RecipeSettings& settings = *recipe.settings;
  const std::vector<DeviceSpec> specs =
      parse_devices(settings.devices, command.context.machine, settings.shards > 0 ? settings.shards : 1024);
  const std::vector<int64_t> batches = batches_of(arguments, settings);  // per device where shards are the devices
  const bool per_device = settings.shards_from_devices;
  const std::vector<std::string> precisions =
      precisions_of(arguments, settings, !elsewhere.empty() || specs[0].kind == DeviceSpec::Kind::kCuda);
  if (!arguments.plan.batch.empty()) {
    refuse_endless_batches(batches, settings.batch_size, recipe.name);
    for (const int64_t batch : batches) check_batch(command, command.subject(), batch);
    settings.batch_size = batches.front();
  }
  settle(recipe, command);
  const int there = static_cast<int>(report.here ? specs.size() : elsewhere.size());
  std::vector<int> counts;
  if (!arguments.plan.gpus.empty()) counts = parse_counts(arguments.plan.gpus, there);
  check_counts(counts, per_device ? there : settings.shards, command.subject());
  report.job = shape_of_job(command, recipe.name, *recipe.resolver);
  report.shards = per_device ? 0 : settings.shards;
  report.batch = batches.front();
  // The calibration knows the settings as they were given: shards = "devices" must stay open in it.
  ResolvedRecipe open = resolve_recipe(command.subject(), arguments, command.context, Output(false, true, false, true));
  std::vector<std::string> measured = precisions;
  if (!elsewhere.empty() && specs[0].kind == DeviceSpec::Kind::kCpu) measured = {"fp32"};  // says nothing of GPUs
  report.calibration = measure(command, {.recipe = recipe.name,
                                         .title = recipe.name,
                                         .resolver = open.resolver.get(),
                                         .devices = specs,
                                         .batches = batches,
                                         .precisions = measured,
                                         .most = !report.here     ? 1
                                                 : counts.empty() ? most_workers(there, settings)
                                                                  : counts.back(),
                                         .budget_s = kOfBudget * arguments.plan.budget_s,
                                         .anew = arguments.plan.calibrate});
  PlanQuestion question{.recipe = recipe.name,
                        .job = report.job,
                        .devices = report.here ? devices_here(specs) : report.devices,
                        .counts = counts,
                        .batches = batches,
                        .memory_fraction = settings.memory_fraction,
                        .host_bytes = static_cast<double>(usable_memory_bytes(memory_facts()).value_or(0)),
                        .measured_w = report.here ? watts_of_one(report.calibration) : 0,
                        .cores = command.context.machine.cpu_cores,
                        .checkpoints = checkpoint_rule(settings),
                        .prices = report.prices,
                        .rent = {},
                        .past_error = std::max(outcome_error(report.outcomes), load_error(report.calibration))};
  report.devices = question.devices;
  if (!per_device && std::cmp_less(settings.shards, there) && counts.empty())
    report.notes.push_back(
        fmt::format("{} devices, but {} shards, which are never split: {} of them have nothing to do", there,
                    settings.shards, there - settings.shards));
  const std::vector<const GpuModel*> gpus = report.here ? gpus_of(report.devices) : elsewhere;
  question.rent = [&](const std::vector<int>& used) {
    return rent_of(report.prices, gpus_used(report.devices, gpus, {used.begin(), used.end()}));
  };
  for (const std::string& precision : precisions) {
    std::set<std::string_view> silent;
    for (const GpuModel* model : elsewhere)
      if (!states_peak(*model, precision) && silent.insert(model->name).second)
        report.notes.push_back(
            fmt::format("the maker of {} states no peak in {}: that of fp32 was taken", model->name, precision));
    Calibration calibration = report.calibration;
    if (!report.here) {
      const std::vector<int64_t> points = batches.size() > 1 ? batches : std::vector{batches[0], 2 * batches[0]};
      Scaled scaled = scale_to(elsewhere, report.calibration, report.job, points, precision);
      question.past_error = scaled.error;
      report.scaled_from = scaled.from;
      if (!scaled.between.empty() && precision == precisions.front())
        report.notes.push_back("assumed between the GPUs: " + scaled.between);
      calibration = std::move(scaled.calibration);
    }
    if (std::ranges::none_of(calibration.trials, [&](const Trial& t) { return t.precision == precision; })) continue;
    question.batches = batches_known(batches, calibration, precision);
    const StepModel steps(calibration, precision);
    std::optional<MemoryModel> memory;
    try {
      memory.emplace(calibration, precision, question.devices[0].device.model != "cpu");
    } catch (const ConfigError&) {
      report.notes.push_back("no worker's memory is known: it was measured by another version");
    }
    for (PlanRow& row : plan_rows(question, steps, memory ? &*memory : nullptr, precision))
      report.rows.push_back(std::move(row));
    report.precisions.push_back(precision);
  }
  add_power(report, gpus, question.measured_w);
  const PlanRow* best = best_row(report.rows, report.batch, report.precisions.empty() ? "" : report.precisions[0]);
  if (best && report.here) {
    std::vector<DeviceSpec> used;
    for (const int i : best->used) used.push_back(specs[static_cast<size_t>(i)]);
    report.command =
        command_to_copy(command, devices_named(used), report.batch != open.settings->batch_size ? report.batch : 0,
                        best->precision != open.settings->precision ? best->precision : "");
  }
}

}  // namespace

int run_plan(const Command& command) {
  const Arguments& arguments = command.arguments;
  if (arguments.plan.make_prices) return make_prices(command);
  if (command.subject().empty())
    throw ConfigError("plan what?", "a forecast is of a recipe",
                      fmt::format("name one: `{} plan {}`", command.context.program, command.context.example()));
  refuse_csv_with_json(arguments.csv, arguments.json);
  check_out_file(arguments.csv, "--csv");
  PlanReport report;
  report.prices = load_prices(arguments.plan.prices);
  if (arguments.plan.price_kwh && (!(*arguments.plan.price_kwh >= 0) || *arguments.plan.price_kwh > kMostForKwh))
    throw ConfigError(fmt::format("--price-kwh {} is no price", *arguments.plan.price_kwh),
                      "it is what a kilowatt-hour costs", "write --price-kwh 0.30");
  if (!(arguments.plan.budget_s >= 1) || arguments.plan.budget_s > 3600)
    throw ConfigError(fmt::format("--budget {} is no time to measure", arguments.plan.budget_s),
                      "it is in seconds, from 1 to 3600", "leave it out for 60");
  std::vector<const GpuModel*> elsewhere;
  if (!arguments.plan.hardware.empty()) {
    elsewhere = parse_hardware(arguments.plan.hardware);
    if (elsewhere.size() > 64)
      throw ConfigError(fmt::format("--hardware {}: {} GPUs", printable(arguments.plan.hardware), elsewhere.size()),
                        "forecasts are for one machine", "name at most 64");
    report.here = false;
    report.hardware = hardware_name(elsewhere);
    for (const GpuModel* model : elsewhere) {
      report.devices.push_back(
          {{std::string(model->name), 1, -1}, std::string(model->name), model->memory_gb * 1e9, model->power_w});
      if (const std::string why = model->why_no_training(); report.trains.find(why) == std::string::npos)
        report.trains += why + ". ";
    }
    if (!report.trains.empty()) report.trains += "This is a forecast only";
  }
  for (const CloudPrice& offer : report.prices.cloud) parse_hardware(offer.hardware);  // refused now, not half-way
  for (const BuyPrice& offer : report.prices.buy) parse_hardware(offer.hardware);
  ResolvedRecipe recipe = resolve_recipe(command.subject(), arguments, command.context, command.output);
  report.recipe = recipe.name;
  use_local_price(arguments, *recipe.settings, report);
  report.outcomes = last_outcomes(forecast_cache(), recipe.name, kOutcomes);
  try {
    if (const JobSet* set = set_of(find_recipe(command.context.recipes, recipe.name), *recipe.settings))
      plan_set(command, *set, recipe, report, elsewhere);
    else
      plan_job(command, recipe, report, elsewhere);
  } catch (const TrialInterrupted& stopped) {
    return stopped.code;
  }
  if (const auto need = disk_need(find_recipe(command.context.recipes, recipe.name), *recipe.settings))
    report.notes.push_back("disk: " + disk_text(*need));
  show_plan(command, report);
  return 0;
}

}  // namespace tandem
