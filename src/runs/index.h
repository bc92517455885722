// runs/index.h -- all runs under one root, in a SQLite file that can be thrown away.
//
// The folders are the truth; <root>/index.sqlite is their cache. It is made on demand, brought up to date by sync()
// (only folders whose run.json or training_stats.json changed are read again) and rebuilt when missing, of another
// version, or damaged. Where no index can be written (read-only root) it lives in memory. Several processes may use it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "telemetry/step_record.h"

namespace tandem {

class SqliteDatabase;

struct RunRow {
  std::string id, recipe, status;  // status: created | running | died | done | stopped | failed | unknown
  std::string started;             // UTC, "2026-11-15T01:47:06Z"
  std::filesystem::path dir;
  int64_t step = 0, total_steps = 0;
  double seconds = 0, loss = kAbsent;
  std::string digest, kind;
  int exit_code = 0;
  std::map<std::string, double> metrics;        // loss, samples_per_s and the newest value of each of the run's metrics
  std::map<std::string, std::string> settings;  // key -> value as text, of recipe.toml

  std::string short_id() const;  // the six letters; of a folder that the user named, its name
};

struct RunComparison {
  RunRow a, b;
  struct Setting {
    std::string key;
    std::optional<std::string> a, b;
  };
  struct Metric {
    std::string name;
    std::optional<double> a, b;
  };
  std::vector<Setting> settings;    // those that differ
  std::vector<Metric> metrics;      // all, by name
  std::optional<bool> same_digest;  // absent if one has none
  bool same_kind = false;
};

struct RunFilter {
  std::string recipe, status;  // empty: any
  int64_t limit = 0;           // 0: all
};

bool lower_is_better(const std::string& metric);  // by its name: loss, error, time and the like

class RunIndex {
 public:
  // Opens (or makes, or rebuilds) the index of `root` and syncs it. A root that does not exist is an empty list.
  explicit RunIndex(std::filesystem::path root);
  ~RunIndex();

  int64_t sync();     // returns how many folders were read again or dropped
  int64_t rebuild();  // from nothing; returns how many runs there are

  std::vector<RunRow> list(const RunFilter& filter = {});  // newest first
  RunRow show(const std::string& name);                    // as RunFolder::find; throws ConfigError
  RunComparison compare(const std::string& a, const std::string& b);
  // The run whose metric is best: lowest for names with loss, error, perplexity, seconds or time in them, else highest;
  // `order` "min" or "max" decides it. Throws ConfigError that lists the known metrics if no run has it.
  RunRow best(const std::string& metric, const std::string& recipe = "", const std::string& order = "");
  bool in_memory() const;

 private:
  int64_t bring_up_to_date(bool from_nothing);
  std::unique_ptr<SqliteDatabase> database_;
  std::filesystem::path root_;
};

// One shape for scripts (numbers without units, absent = null) and one for people.
nlohmann::json to_json(const RunRow& row);
nlohmann::json to_json(const std::vector<RunRow>& rows);
nlohmann::json to_json(const RunComparison& comparison);
// Columns for return and score are there if one of the runs has them.
std::string list_text(const std::vector<RunRow>& rows, int width = 100);
std::string show_text(const RunRow& row);
std::string compare_text(const RunComparison& comparison, int width = 100);

}  // namespace tandem
