// tandem_simulate -- runs seeded schedules of the fleet; see simulation.h. Exit 1 at the first broken promise.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>

#include "simulation.h"

namespace {

using namespace tandem::simulation;

int usage(const std::string& why) {
  std::string names;
  for (const auto& [name, mutant] : mutants()) names += " " + name;
  fmt::print(stderr,
             "error: {}\nusage: tandem_simulate --seed N [--schedules K] [--workers W] [--mutant NAME] [--verbose]\n"
             "  schedule i has the seed N + i; the mutants are:{}\n",
             why, names);
  return 2;
}

void report(const Options& options, const ScheduleResult& outcome, const std::string& mutant) {
  fmt::print("seed {}: {}\n  {}\n", options.seed, outcome.violation, outcome.job);
  for (const std::string& event : outcome.events) fmt::print("  {}\n", event);
  fmt::print("again: make simulate SEED={}{}{}\n", options.seed,
             options.workers > 0 ? fmt::format(" WORKERS={}", options.workers) : "",
             mutant.empty() ? "" : " MUTANT=" + mutant);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  uint64_t schedules = 1;
  std::string mutant;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--verbose") {
      options.verbose = true;
      continue;
    }
    if (i + 1 == argc) return usage(flag + " needs a value, or is not known");
    const std::string value = argv[++i];
    if (flag == "--seed")
      options.seed = std::strtoull(value.c_str(), nullptr, 10);
    else if (flag == "--schedules")
      schedules = std::strtoull(value.c_str(), nullptr, 10);
    else if (flag == "--workers")
      options.workers = std::atoi(value.c_str());
    else if (flag == "--mutant")
      mutant = value;
    else
      return usage(flag + " is not known");
  }
  options.mutant = mutant_named(mutant);
  if (!mutant.empty() && options.mutant == Mutant::kNone) return usage("no mutant " + mutant);
  if (options.workers < 0 || options.workers > 64) return usage("--workers is 1 to 64");

  const auto begin = std::chrono::steady_clock::now();
  ScheduleResult sum;
  for (uint64_t i = 0; i < schedules; ++i, ++options.seed) {
    const ScheduleResult one = simulate(options);
    if (!one.violation.empty()) {
      fmt::print("a promise is broken in schedule {} of {}\n", i + 1, schedules);
      report(options, one, mutant);
      return 1;
    }
    sum.ticks += one.ticks, sum.deaths += one.deaths, sum.fences += one.fences, sum.flips += one.flips;
    sum.gone_on += one.gone_on, sum.restores += one.restores, sum.snapshots += one.snapshots;
    sum.joins += one.joins, sum.restarts += one.restarts;
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  fmt::print(
      "{} schedules, 0 violations, {:.1f} s: {} actions, {} kills, {} fences, {} flips, {} joins, {} restarts of "
      "everything; {} generations that went on, {} that restored, {} whole snapshots\n",
      schedules, seconds, sum.ticks, sum.deaths, sum.fences, sum.flips, sum.joins, sum.restarts, sum.gone_on,
      sum.restores, sum.snapshots);
  return 0;
}
