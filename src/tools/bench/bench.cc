// tools/bench/bench.cc -- `tandem bench`: samples learned a second on 1 to n of the devices at hand, for some batch
// sizes, of every recipe. Real training in folders that are gone afterwards.
#include "tools/bench/bench.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "command/command.h"
#include "command/out_file.h"
#include "command/start.h"
#include "command/table.h"
#include "command/trial_run.h"
#include "config/spelling.h"
#include "forecast/money.h"
#include "jobs/job_set.h"
#include "telemetry/human.h"
#include "tools/plan/plan.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

struct Bench {
  std::string name, recipe;
  std::vector<int64_t> batches;
};

std::vector<std::string> names_of(const CliContext& context) {
  std::vector<std::string> names;
  for (const RecipeInfo& recipe : context.recipes) names.push_back(recipe.name);
  return names;
}

// Those of its entry, else half, whole and double of the recipe's own, where shards divide it.
std::vector<int64_t> batches_for(const BenchPreset& preset, const RecipeSettings& settings) {
  if (!preset.batches.empty()) return preset.batches;
  const int64_t own = settings.batch_size, unit = std::max<int64_t>(1, settings.shards) * settings.accumulation;
  std::vector<int64_t> batches;
  if (own % (2 * unit) == 0) batches.push_back(own / 2);
  batches.push_back(own);
  batches.push_back(2 * own);
  return batches;
}

// Recipes whose training can't begin here are left out where all were asked for, with the reason.
std::vector<Bench> benches_of(const Command& command) {
  Arguments arguments = command.arguments;
  arguments.quick = false;  // of the measurement, not of the recipe
  const bool all = arguments.subjects.empty();
  const std::vector<RecipeInfo>& recipes = command.context.recipes;
  const std::vector<std::string> known = names_of(command.context);
  std::vector<Bench> benches;
  for (const std::string& name : all ? known : arguments.subjects) {
    if (!name.ends_with(".toml") && std::ranges::find(known, name) == known.end())
      throw ConfigError(fmt::format("there is no benchmark '{}'", printable(name)),
                        fmt::format("every recipe is one: {}", fmt::join(known, ", ")),
                        fmt::format("use `{} bench {}`, or no name for all of them", command.context.program,
                                    command.context.example()));
    const BenchPreset preset = name.ends_with(".toml") ? BenchPreset{} : find_recipe(recipes, name).bench;
    if (all && !preset.among_all) continue;
    const std::string trained = preset.trains.empty() ? name : preset.trains;
    ResolvedRecipe recipe = resolve_recipe(trained, arguments, command.context, command.output);
    if (const JobSet* set = set_of(find_recipe(recipes, recipe.name), *recipe.settings))
      throw ConfigError(fmt::format("{} is a set of jobs", name), "a benchmark is of one of them",
                        fmt::format("use `bench {}`, or a file for {}", recipe.name, set->job_recipe()));
    const bool asked = !arguments.plan.batch.empty();
    benches.push_back(
        {name, trained, asked ? parse_batches(arguments.plan.batch) : batches_for(preset, *recipe.settings)});
    if (asked && !all)
      for (const int64_t batch : benches.back().batches) check_batch(command, trained, batch);
  }
  return benches;
}

std::string csv(const std::vector<BenchRow>& rows) {
  std::string text =
      "devices,names,batch_size,samples_per_s,deviation,speedup,repetitions,bench,ms_per_iteration,ms_deviation,"
      "efficiency,rival,memory_bytes,loader_ms,combine_ms\n";
  const auto cell = [](const std::optional<double>& value) { return value ? fmt::format("{:.4g}", *value) : ""; };
  for (const BenchRow& row : rows)
    text +=
        fmt::format("{},{},{},{:.1f},{},{},{},{},{:.4g},{},{},{},{},{},{}\n", row.count, csv_cell(row.devices),
                    row.batch, row.rate.mean(), cell(row.rate.deviation()), cell(row.speedup), row.rate.values.size(),
                    csv_cell(row.bench), row.ms.mean(), cell(row.ms.deviation()), cell(row.efficiency()),
                    row.baseline ? "yes" : "no", row.memory_bytes > 0 ? fmt::format("{:.0f}", row.memory_bytes) : "",
                    cell(row.loader.known()), cell(row.combine.known()));
  return text;
}

std::string table(const std::vector<BenchRow>& rows, const std::string& bench) {
  Table table({"devices", "", "batch size", "samples/s", "", "ms/iteration", "", "loader", "combine", "memory",
               "speedup", "efficiency", "guides"},
              "><>><><>>>>>>");
  const auto ms = [](const std::optional<double>& part) { return part ? fmt::format("{:.3f}", *part) : "-"; };
  for (const BenchRow& row : rows) {
    if (row.bench != bench) continue;
    const auto guide = row.baseline ? std::nullopt : guide_figures(row.recipe, static_cast<int>(row.count));
    table.row({fmt::format("{}", row.count), row.devices, fmt::format("{}", row.batch),
               fmt::format("{:.0f}", row.rate.mean()),
               row.rate.deviation() ? fmt::format("+- {:.0f}", *row.rate.deviation()) : "",
               fmt::format("{:.3f}", row.ms.mean()),
               row.ms.deviation() ? fmt::format("+- {:.2g}", *row.ms.deviation()) : "", ms(row.loader.known()),
               ms(row.combine.known()),
               row.memory_bytes > 0 ? bytes_text(static_cast<uint64_t>(row.memory_bytes)) : "-", row.speedup_text(),
               row.efficiency_text(), guide ? fmt::format("{:.1f}x", guide->speedup) : "-"});
  }
  return table.text();
}

Json json_of(const BenchRow& row) {
  return {{"bench", row.bench},
          {"recipe", row.recipe},
          {"devices", row.count},
          {"names", row.devices},
          {"batch_size", row.batch},
          {"samples_per_s", row.rate.mean()},
          {"deviation", row.rate.deviation() ? Json(*row.rate.deviation()) : Json()},
          {"repetitions", row.rate.values},
          {"ms_per_iteration", row.ms.mean()},
          {"ms_deviation", row.ms.deviation() ? Json(*row.ms.deviation()) : Json()},
          {"loader_ms", row.loader.known() ? Json(*row.loader.known()) : Json()},
          {"combine_ms", row.combine.known() ? Json(*row.combine.known()) : Json()},
          {"speedup", row.speedup ? Json(*row.speedup) : Json()},
          {"efficiency", row.efficiency() ? Json(*row.efficiency()) : Json()},
          {"memory_bytes", row.memory_bytes > 0 ? Json(row.memory_bytes) : Json()},
          {"rival", row.baseline}};
}

// A recipe file stands for none of them.
RecipeInfo entry_of(const CliContext& context, const std::string& name) {
  for (const RecipeInfo& recipe : context.recipes)
    if (recipe.name == name) return recipe;
  return {.name = name, .summary = "", .settings = {}};
}

void add_baselines(const Command& command, std::vector<BenchRow>& rows, int repetitions, double seconds) {
  std::vector<BenchRow> baselines;
  for (const BenchRow& row : rows) {
    if (row.count != 1) continue;
    BenchRow baseline = row;
    baseline.baseline = true;
    baseline.devices = "PyTorch eager";
    baseline.rate = baseline.ms = baseline.loader = baseline.combine = {};
    baseline.memory_bytes = 0;
    const bool cuda = row.devices.starts_with("cuda");
    for (int r = 0; r < repetitions; ++r) {
      command.output.say(fmt::format("baseline of {} batch {}, {} of {}", row.bench, row.batch, r + 1, repetitions));
      const BaselineAnswer answer = run_baseline(entry_of(command.context, row.recipe), row.batch, seconds, cuda);
      if (!answer.samples_per_s) {
        command.output.warn(fmt::format("no baseline for {}: {}", row.bench, answer.reason));
        break;
      }
      baseline.rate.values.push_back(*answer.samples_per_s);
      baseline.ms.values.push_back(1e3 * static_cast<double>(row.batch) / *answer.samples_per_s);
    }
    if (baseline.rate.values.empty()) continue;
    baseline.speedup = baseline.rate.mean() / row.rate.mean();
    baselines.push_back(std::move(baseline));
  }
  rows.insert(rows.end(), baselines.begin(), baselines.end());
}

// Of a step: training has snapshots, so a rate without them would be too good. The last one ends the trial.
double seconds_with_snapshots(const Trial& trial) {
  const auto before_the_end = static_cast<double>(std::max<int64_t>(0, trial.snapshots - 1));
  return trial.step_seconds + before_the_end * trial.snapshot_seconds / static_cast<double>(trial.steps);
}

// Repetitions outside: what changes with time, such as a machine that grows warm, meets every row alike. A recipe may
// need what is not here (a Python package, say), a batch may not fit: such rows are left out with the reason.
void measure_rows(const Command& command, std::vector<BenchRow>& rows, int repetitions, double seconds,
                  Json& left_out) {
  const bool named = !command.arguments.subjects.empty();
  for (int r = 0; r < repetitions; ++r)
    for (size_t i = 0; i < rows.size();) {
      BenchRow& row = rows[i];
      command.output.say(fmt::format("round {} of {}, {} of {}: {} on {}, batch {}", r + 1, repetitions, i + 1,
                                     rows.size(), row.bench, row.devices, row.batch));
      try {
        const Trial trial = run_trial(
            command,
            {.recipe = row.recipe, .devices = row.devices, .batch = row.batch, .precision = "", .seconds = seconds});
        const double seconds = seconds_with_snapshots(trial);
        row.rate.values.push_back(trial.samples / seconds);
        row.ms.values.push_back(1e3 * seconds);
        row.loader.values.push_back(1e3 * trial.load_seconds);
        row.combine.values.push_back(1e3 * trial.combine_seconds);
        row.memory_bytes = std::max(row.memory_bytes, trial.memory_bytes);
        ++i;
      } catch (const Error& error) {
        const bool whole = r == 0 && (i == 0 || rows[i - 1].bench != row.bench);  // not even its first row
        if (whole && named) throw;
        const BenchRow gone = row;
        command.output.warn(
            fmt::format("{} is left out: {} ({})",
                        whole ? gone.bench : fmt::format("{} on {}, batch {}", gone.bench, gone.devices, gone.batch),
                        error.what(), error.why()));
        left_out.push_back({{"bench", gone.bench},
                            {"names", whole ? Json() : Json(gone.devices)},
                            {"batch_size", whole ? Json() : Json(gone.batch)},
                            {"reason", fmt::format("{}: {}", error.what(), error.why())}});
        std::erase_if(rows, [&](const BenchRow& other) {
          return other.bench == gone.bench && (whole || (other.devices == gone.devices && other.batch == gone.batch));
        });
      }
    }
}

std::vector<BenchRow> rows_to_measure(const std::vector<Bench>& benches, const std::vector<DeviceSpec>& devices) {
  std::vector<BenchRow> rows;
  for (const Bench& bench : benches)
    for (size_t count = 1; count <= devices.size(); ++count)
      for (const int64_t batch : bench.batches)
        rows.push_back({.bench = bench.name,
                        .recipe = bench.recipe,
                        .devices = first_devices(devices, count),
                        .count = count,
                        .batch = batch,
                        .rate = {},
                        .ms = {},
                        .loader = {},
                        .combine = {}});
  return rows;
}

// Against one device with the same batch.
void add_speedups(std::vector<BenchRow>& rows) {
  std::map<std::pair<std::string, int64_t>, double> alone;
  for (BenchRow& row : rows) {
    if (row.count == 1) alone[{row.bench, row.batch}] = row.rate.mean();
    const auto one = alone.find({row.bench, row.batch});
    if (one != alone.end()) row.speedup = row.rate.mean() / one->second;
  }
}

// As a page and a file where these were asked for; as a table or an object.
void show_rows(const Command& command, const std::vector<Bench>& benches, const std::vector<BenchRow>& rows,
               const Json& left_out, int repetitions, double seconds) {
  const Arguments& arguments = command.arguments;
  const std::string note =
      fmt::format("{} repetition{} of {:.0f} s each; speedup against one device with the same batch", repetitions,
                  repetitions == 1 ? "" : "s", seconds);
  if (!arguments.plot.empty())
    write_out_file(arguments.plot, bench_page(rows, machine_name(command.context), note), "--plot");
  if (arguments.csv == "-") {
    command.output.data(csv(rows));
    return;
  }
  if (!arguments.csv.empty()) write_out_file(arguments.csv, csv(rows), "--csv");
  if (!command.output.json()) {
    for (const Bench& bench : benches) {
      if (std::ranges::none_of(rows, [&](const BenchRow& row) { return row.bench == bench.name; })) continue;
      if (benches.size() > 1) command.output.data(bench.name + "\n");
      command.output.data(table(rows, bench.name));
    }
    command.output.say(fmt::format("{}, {}", benches.size() == 1 ? benches[0].recipe : "each recipe", note));
    return;
  }
  Json out = Json::array();
  for (const BenchRow& row : rows) out.push_back(json_of(row));
  Json object = {{"seconds_each", fmt::format("{:.0f}s", seconds)},
                 {"machine", machine_name(command.context)},
                 {"left_out", left_out},
                 {"rows", out}};
  if (benches.size() == 1) object.update({{"bench", benches[0].name}, {"recipe", benches[0].recipe}});
  command.output.object(std::move(object));
}

}  // namespace

int run_bench(const Command& command) {
  const Arguments& arguments = command.arguments;
  const int repetitions = static_cast<int>(arguments.repeat.value_or(arguments.quick ? 2 : 3));
  if (repetitions < 1 || repetitions > 1000)
    throw ConfigError(fmt::format("--rounds {} is no number of repetitions", repetitions), "1 to 1000 can be done",
                      "leave it out for 3");
  refuse_csv_with_json(arguments.csv, arguments.json);
  check_out_file(arguments.csv, "--csv");
  check_out_file(arguments.plot, "--plot");
  const double seconds = arguments.quick ? 1 : 5;
  const auto all = parse_devices(arguments.bench_devices, command.context.machine, 8);
  const std::vector<Bench> benches = benches_of(command);
  check_worker_program(command.context);

  std::vector<BenchRow> rows = rows_to_measure(benches, all);
  Json left_out = Json::array();
  int code = 0;
  try {
    measure_rows(command, rows, repetitions, seconds, left_out);
  } catch (const TrialInterrupted& stopped) {  // minutes of measuring are not thrown away
    code = stopped.code;
    std::erase_if(rows, [](const BenchRow& row) { return row.rate.values.empty(); });
    command.output.warn(fmt::format("stopped: what was measured until then is shown ({} rows)", rows.size()));
    if (rows.empty()) return code;
  }
  add_speedups(rows);
  if (std::any_of(rows.begin(), rows.end(),
                  [](const BenchRow& row) { return row.rate.deviation().value_or(0) > 0.2 * row.rate.mean(); }))
    command.output.warn("repetitions differ by more than a fifth: something else was using the machine");
  if (arguments.baselines && code == 0) {
    add_baselines(command, rows, repetitions, seconds);
    command.output.say("PyTorch eager: one thread, the whole batch at once, no shards, priorities or environments");
  }
  show_rows(command, benches, rows, left_out, repetitions, seconds);
  return code;
}

}  // namespace tandem
