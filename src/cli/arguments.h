// cli/arguments.h -- the command line as a struct. Parsing is pure: it reads argv and nothing else.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/cli_main.h"

namespace tandem {

// One setting given by a flag: --lr 0.1 is {"optimizer.learning_rate", "0.1", "--lr"}.
struct Override {
  std::string key, value, source;
};

struct PlanArguments {
  std::string hardware, gpus, batch, precision;
  std::optional<std::string> prices;
  std::optional<double> price_kwh;
  double budget_s = 60;  // of measuring
  bool calibrate = false, make_prices = false;
};

// Of `tandem monitor`.
struct MonitorArguments {
  bool snapshot = false, csv = false, prometheus = false, web = false, no_history = false;
  std::optional<double> interval;  // seconds
  std::optional<int64_t> count;
  std::string host = "127.0.0.1", token_file, history;
  int64_t port = 0;
};

struct Arguments {
  std::vector<std::string> command;   // {"runs", "list"}; empty: none was given
  std::vector<std::string> subjects;  // recipe, run, path, metric or shell
  std::vector<Override> overrides;    // in the order of application
  std::optional<std::string> resume;  // "last", a run or a checkpoint
  std::optional<std::string> run_dir, runs_root, from;
  std::string output, filter_recipe, filter_status, order;
  std::string agent, act_devices, csv, plot, record;
  std::string power;                              // of guard: 80%, 180W
  std::optional<std::string> interval, for_time;  // of guard
  std::optional<double> target;
  std::optional<int64_t> step, limit, rank, local_rank, episodes, repeat;
  PlanArguments plan;
  int64_t seed = 1;  // of eval and bench; a recipe's is a setting
  bool json = false, quiet = false, verbose = false, no_color = false, no_input = false;
  bool dry_run = false, quick = false, origin = false, force = false;
  bool ensemble = false, strict = false, full = false, print_timer = false;
  bool baselines = false;
  bool help = false, version = false;
  std::string report;   // file that doctor writes
  std::string compare;  // hardware that gpus sets beside this machine's
  bool bandwidth = false;
  MonitorArguments monitor;
};

// Throws ConfigError that suggests the nearest command or flag. With --help or --version anywhere, nothing else is
// checked. Both - and _ are accepted in the names of flags.
Arguments parse_arguments(int argc, const char* const* argv, const CliContext& context);

// A flag that sets a key of the recipe; help shows the key's present value beside it.
struct SettingFlag {
  const char* names;  // as CLI11 takes them: "--lr,--learning-rate"
  const char* key;
  const char* value_name;
  const char* help;
};
const std::vector<SettingFlag>& setting_flags();

}  // namespace tandem
