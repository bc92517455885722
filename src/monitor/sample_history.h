// monitor/sample_history.h -- what was measured, kept bounded in one SQLite file: each second for ten minutes, every
// ten seconds for six hours, every minute for a week.
//
// It may be thrown away at any time, also while monitors write it. Several monitors write one file (the first to report
// a second is believed), and a monitor that is killed loses the last few seconds. A file that is damaged or of
// another version is set aside (FILE.damaged) and begun anew; where none can be written the history lives in memory.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "monitor/sample.h"

namespace tandem {

class SqliteDatabase;

// What is kept of a source; NaN where there is no value.
inline constexpr std::array<const char*, 8> kGpuValues = {"utilisation_percent", "memory_used_gb", "power_w",
                                                          "temperature_c",       "sm_clock_mhz",   "fan_percent",
                                                          "pcie_rx_gb",          "pcie_tx_gb"};
inline constexpr std::array<const char*, 2> kHostValues = {"cpu_percent", "memory_used_gb"};
inline constexpr std::array<const char*, 5> kRunValues = {"loss", "steps_per_s", "samples_per_s", "average_return",
                                                          "score"};
enum RunValue : size_t { kRunLoss, kRunSteps, kRunSamples, kRunReturn, kRunScore };  // return and score of one agent

struct HistorySeries {
  std::string source;                      // "host", "gpu:0", "run:<id>"
  std::vector<int64_t> times;              // Unix seconds, ascending
  std::vector<std::vector<float>> values;  // by value, each as long as times
};

struct HistoryTier {
  int64_t seconds;  // of one point
  int64_t kept;     // seconds
};
inline constexpr std::array<HistoryTier, 3> kHistoryTiers = {{{1, 600}, {10, 21600}, {60, 604800}}};

class History {
 public:
  // Empty path: in memory. `most_bytes` bounds the file; its journal has an eighth of that on top.
  explicit History(std::filesystem::path file, uint64_t most_bytes = uint64_t{64} << 20);
  ~History();  // writes what it holds
  History(const History&) = delete;
  History& operator=(const History&) = delete;

  void add(const MonitorSample& sample);
  void flush();
  // All sources that have points in the last `seconds` (of runs the newest 32), from the finest tier that reaches so
  // far back. Nothing of the future, which a clock that was wrong may have left.
  std::vector<HistorySeries> read(double unix_now, int64_t seconds);
  bool in_memory() const;
  const std::string& trouble() const { return trouble_; }  // why it is in memory, or was begun anew

  static std::filesystem::path default_file();  // $XDG_STATE_HOME/tandem/monitor-<host>.sqlite; empty: no home
  // Of a file that the user named: throws ConfigError if it holds something else, which must not be lost.
  static void check_is_ours(const std::filesystem::path& file);

 private:
  struct Mean {
    int64_t time = -1;
    std::vector<double> sums;
    std::vector<int> counts;
  };
  struct Point {
    int tier;
    std::string source;
    int64_t time;
    std::vector<float> values;
  };
  void open(const std::filesystem::path& file);
  bool set_aside();
  bool file_is_another() const;
  void put(const std::string& source, int64_t time, const std::vector<double>& values);
  void finish(size_t tier, const std::string& source, const Mean& mean);
  void finish_silent(int64_t now);
  void write();
  std::vector<int64_t> source_ids();
  void forget_old(int64_t now);
  void cut(int64_t now, int64_t share, int64_t source);
  bool make_room(int64_t now, int64_t most_used);
  std::vector<std::pair<int64_t, std::string>> sources_since(size_t tier, int64_t since, int64_t until);

  uint64_t most_bytes_;
  int64_t bound_ = 0;  // of what is open: less in memory
  std::filesystem::path file_;
  std::unique_ptr<SqliteDatabase> database_;
  ino_t inode_ = 0;  // of the file that is open
  std::string trouble_;
  std::array<std::map<std::string, Mean>, kHistoryTiers.size()> means_;
  std::vector<Point> waiting_;
  double flushed_at_ = 0;
  int64_t pruned_at_ = 0, newest_ = 0;  // Unix
};

}  // namespace tandem
