// cli/bench.cc -- `tandem bench web-test`: samples learned a second on 1 to n of the devices at hand, for the batch
// sizes of the usual table. Real training of web-agent in folders that are gone afterwards.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "base/file_system.h"
#include "cli/commands.h"
#include "cli/start.h"
#include "launch/run_lock.h"
#include "runs/run_folder.h"
#include "telemetry/metrics_file.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int kBatches[] = {128, 256, 512};

struct Figure {
  std::vector<double> rates;  // samples a second, of each repetition
  double mean() const {
    double sum = 0;
    for (double rate : rates) sum += rate;
    return sum / static_cast<double>(rates.size());
  }
  double deviation() const {
    double squares = 0;
    for (double rate : rates) squares += (rate - mean()) * (rate - mean());
    return rates.size() > 1 ? std::sqrt(squares / static_cast<double>(rates.size() - 1)) : 0;
  }
};

struct Row {
  std::string devices;  // "cuda:0,cuda:1"
  size_t count = 0;
  int batch = 0;
  Figure figure;
  double speedup = 1;
};

// A folder that is removed at the end, whatever happens.
class Scratch {
 public:
  Scratch() {
    std::string name = (fs::temp_directory_path() / "tandem-bench-XXXXXX").string();
    if (!mkdtemp(name.data()))
      throw IoError(fmt::format("cannot make a folder in {}", fs::temp_directory_path().string()), errno,
                    "name another place by TMPDIR");
    path_ = name;
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::string first_devices(const std::vector<DeviceSpec>& all, size_t count) {
  std::string names, speeds;
  bool slowed = false, cpus = true;
  for (size_t i = 0; i < count; ++i) {
    names += (i ? "," : "") + all[i].name();
    speeds += fmt::format("{}{:g}", i ? "," : "", all[i].speed);
    slowed = slowed || all[i].speed != 1;
    cpus = cpus && all[i].kind == DeviceSpec::Kind::kCpu;
  }
  return cpus ? fmt::format("cpu:{}{}", count, slowed ? "@" + speeds : "") : names;
}

struct Interrupted {
  int code;
};

// Samples a second without the first fifth of the steps, in which caches fill and graphs are recorded.
double rate_of(const fs::path& metrics) {
  std::vector<std::pair<double, double>> steps;  // samples, seconds
  read_metrics(metrics, [&](const StepRecord& r) { steps.emplace_back(r.samples, r.seconds); });
  double samples = 0, seconds = 0;
  for (size_t i = steps.size() / 5; i < steps.size(); ++i) {
    samples += steps[i].first;
    seconds += steps[i].second;
  }
  if (seconds <= 0)
    throw Error(ExitCode::kFailed, "nothing was measured", "no step was done in the time given", "run without --quick");
  return samples / seconds;
}

double measure(const Command& command, const std::string& devices, int batch, const std::string& time) {
  Arguments arguments = command.arguments;
  const auto preset = [&](const char* key, const std::string& value) {
    arguments.overrides.insert(arguments.overrides.begin(), {key, value, "bench"});
  };
  // A small buffer: its size does not matter to the speed of a step, but to the time in which it is saved at the end.
  preset("capacity", "65536");
  preset("learning_starts", "2048");
  preset("checkpoint.every", "never");
  preset("steps", "100000000");
  arguments.overrides.push_back({"max_time", time, "bench"});
  arguments.overrides.push_back({"batch_size", std::to_string(batch), "bench"});
  arguments.overrides.push_back({"devices", devices, "bench"});
  arguments.quick = false;  // of the measurement, not of the recipe
  const Output silent(false, true, false, true);
  const Command inner{arguments, command.context, silent};
  const Scratch scratch;
  ResolvedRecipe recipe = resolve_recipe("web-agent", arguments, command.context, silent);
  const auto specs = settle(recipe, inner);
  const RunFolder run = RunFolder::create(scratch.path(), recipe.name, scratch.path() / "run");
  const RunLock lock(run.dir());
  run.write_recipe(recipe.resolver->to_toml(recipe.name));
  const int code = start_run(inner, recipe, specs, run.dir(), false);
  if (code != 0 && code != static_cast<int>(ExitCode::kResumable)) throw Interrupted{code};
  return rate_of(run.metrics_jsonl());
}

std::string csv(const std::vector<Row>& rows) {
  std::string text = "devices,names,batch_size,samples_per_s,deviation,speedup,repetitions\n";
  for (const Row& row : rows)
    text += fmt::format("{},\"{}\",{},{:.1f},{:.1f},{:.3f},{}\n", row.count, row.devices, row.batch, row.figure.mean(),
                        row.figure.deviation(), row.speedup, row.figure.rates.size());
  return text;
}

std::string table(const std::vector<Row>& rows) {
  std::string text =
      fmt::format("{:>7}  {:<16} {:>10}  {:>22}  {:>7}\n", "devices", "", "batch size", "samples/s", "speedup");
  for (const Row& row : rows)
    text += fmt::format("{:>7}  {:<16} {:>10}  {:>13.0f} +- {:<5.0f}  {:>6.2f}x\n", row.count, row.devices, row.batch,
                        row.figure.mean(), row.figure.deviation(), row.speedup);
  return text;
}

}  // namespace

int run_bench(const Command& command) {
  const Arguments& arguments = command.arguments;
  if (command.subject() != "web-test")
    throw ConfigError(
        command.subject().empty() ? "bench what?" : fmt::format("there is no benchmark '{}'", command.subject()),
        "the benchmarks are: web-test", fmt::format("use `{} bench web-test`", command.context.program));
  const int repetitions = static_cast<int>(arguments.repeat.value_or(arguments.quick ? 2 : 3));
  if (repetitions < 1 || repetitions > 1000)
    throw ConfigError(fmt::format("--repeat {} is no number of repetitions", repetitions), "1 to 1000 can be done",
                      "leave it out for 3");
  const std::string time = arguments.quick ? "1s" : "5s";
  const auto all = parse_devices(arguments.act_devices, command.context.machine, 8);
  check_worker_program(command.context);

  std::vector<Row> rows;
  for (size_t count = 1; count <= all.size(); ++count)
    for (const int batch : kBatches) rows.push_back({first_devices(all, count), count, batch, {}, 1});
  try {
    // Repetitions outside: what changes with time, such as a machine that grows warm, meets every row alike.
    for (int r = 0; r < repetitions; ++r)
      for (Row& row : rows) {
        command.output.detail(fmt::format("{} batch {}, {} of {}", row.devices, row.batch, r + 1, repetitions));
        row.figure.rates.push_back(measure(command, row.devices, row.batch, time));
      }
  } catch (const Interrupted& stopped) {
    return stopped.code;
  }
  std::map<int, double> alone;
  for (Row& row : rows) {
    if (row.count == 1) alone[row.batch] = row.figure.mean();
    row.speedup = row.figure.mean() / alone[row.batch];
  }
  if (std::any_of(rows.begin(), rows.end(),
                  [](const Row& row) { return row.figure.deviation() > 0.2 * row.figure.mean(); }))
    command.output.warn("repetitions differ by more than a fifth: something else was using the machine");
  if (!arguments.csv.empty()) {
    try {
      replace_file(FileSystem::real(), arguments.csv, csv(rows));
    } catch (const IoError& error) {
      throw ConfigError(error.what(), error.why(), "choose a file in a folder that exists and is writable with --csv");
    }
  }
  if (!command.output.json()) {
    command.output.data(table(rows));
    command.output.say(
        fmt::format("web-agent, {} repetition{} of {} each; speedup against one device with the same batch",
                    repetitions, repetitions == 1 ? "" : "s", time));
    return 0;
  }
  Json out = Json::array();
  for (const Row& row : rows)
    out.push_back({{"devices", row.count},
                   {"names", row.devices},
                   {"batch_size", row.batch},
                   {"samples_per_s", row.figure.mean()},
                   {"deviation", row.figure.deviation()},
                   {"repetitions", row.figure.rates},
                   {"speedup", row.speedup}});
  command.output.object({{"bench", "web-test"}, {"recipe", "web-agent"}, {"seconds_each", time}, {"rows", out}});
  return 0;
}

}  // namespace tandem
