// command/arguments.h -- the command line as a struct; cli/parse_arguments.h makes it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "command/context.h"

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

// Of `tandem runs rm` and `runs prune`.
struct RemovalArguments {
  std::string older_than, metric;  // "7d"; what the best is the best of
  bool keep_best = false, yes = false;
};

struct Arguments {
  std::vector<std::string> command;   // {"runs", "list"}; empty: none was given
  std::vector<std::string> subjects;  // recipe, run, path, metric or shell
  std::vector<Override> overrides;    // in the order of application
  std::optional<std::string> resume;  // "last", a run or a checkpoint
  std::optional<std::string> run_dir, runs_root, from;
  std::string output, filter_recipe, filter_status, order;
  std::string agent, bench_devices, csv, plot;
  std::string power;                              // of guard: 80%, 180W
  std::optional<std::string> interval, for_time;  // of guard
  std::optional<double> target;
  std::optional<int64_t> step, limit, rank, local_rank, repeat;
  PlanArguments plan;
  bool json = false, quiet = false, verbose = false, no_color = false, no_input = false;
  bool dry_run = false, quick = false, origin = false, force = false;
  bool full = false, print_timer = false, baselines = false;
  bool help = false, version = false;
  std::string report;   // file that doctor writes
  std::string compare;  // hardware that gpus sets beside this machine's
  bool bandwidth = false;
  MonitorArguments monitor;
  RemovalArguments removal;

  // Flags of a recipe's verb (VerbFlag), by their first long name.
  std::map<std::string, std::string> verb_flags;
  bool has(const std::string& flag) const { return verb_flags.contains(flag); }
  std::string text(const std::string& flag, const std::string& otherwise = "") const {
    return has(flag) ? verb_flags.at(flag) : otherwise;
  }
  int64_t whole(const std::string& flag, int64_t otherwise) const {
    return has(flag) ? std::stoll(verb_flags.at(flag)) : otherwise;
  }
};

}  // namespace tandem
