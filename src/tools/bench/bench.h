// tools/bench/bench.h -- between the files of `tandem bench`: its table, and the page with its plots.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "command/command.h"

namespace tandem {

struct BenchFigure {
  std::vector<double> values;  // of each repetition
  double mean() const {
    double sum = 0;
    for (double value : values) sum += value;
    return values.empty() ? 0 : sum / static_cast<double>(values.size());
  }
  std::optional<double> known() const { return values.empty() ? std::nullopt : std::optional(mean()); }
  std::optional<double> deviation() const {  // not known of one repetition
    if (values.size() < 2) return std::nullopt;
    double squares = 0;
    for (double value : values) squares += (value - mean()) * (value - mean());
    return std::sqrt(squares / static_cast<double>(values.size() - 1));
  }
};

struct BenchRow {
  std::string bench, recipe;  // what was asked for, and what was trained for it (BenchPreset)
  std::string devices;        // "cuda:0,cuda:1"; for a baseline its name
  size_t count = 0;
  int64_t batch = 0;
  BenchFigure rate, ms;           // samples a second, milliseconds an update
  BenchFigure loader, combine;    // of those milliseconds: waiting for batches; in combines
  double memory_bytes = 0;        // the most of any worker: of its GPU where it has one; 0: not known
  std::optional<double> speedup;  // against one device with this batch, where that could be measured
  bool baseline = false;
  std::optional<double> efficiency() const {
    if (!speedup || baseline) return std::nullopt;
    return *speedup / static_cast<double>(count);
  }
  std::string speedup_text() const { return speedup ? fmt::format("{:.2f}x", *speedup) : "-"; }
  std::string efficiency_text() const { return efficiency() ? fmt::format("{:.0f} %", 100 * *efficiency()) : "-"; }
};

// One HTML file, no network: a plot for each benchmark, samples a second over devices, a line for each batch.
std::string bench_page(const std::vector<BenchRow>& rows, const std::string& machine, const std::string& note);

// PyTorch's own loop over the same net and batch on one device; nothing where there is no Python with torch, with the
// reason. (bench_baseline.cc)
struct BaselineAnswer {
  std::optional<double> samples_per_s;
  std::string reason;
};
BaselineAnswer run_baseline(const RecipeInfo& recipe, int64_t batch, double seconds, bool cuda);

int run_bench(const Command& command);

}  // namespace tandem
