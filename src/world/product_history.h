// world/product_history.h -- transitions of a real system instead of the simulator's: JSON lines in, checked rows out.
//
// One object a line: {"agent": "analysis", "state": [...], "action": 3, "reward": 0.5, "next_state": [...], "done":
// false}; docs/continuous-learning.md has the whole format. A bad line never stops the reading: it is counted, and the
// first few are named by number with what is wrong. Memory is bounded by the longest line allowed, whatever the file
// holds.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

inline constexpr int32_t kMostHistoryStates = 65536, kMostHistoryActions = 4096;

struct HistoryShape {
  int32_t states = 128, actions = 10;  // 0: as many as the first good line has; any up to kMostHistoryActions
  std::vector<std::string> agents;     // names that are known; empty: "agent" may be left out and is not looked at
};

// Lives until the next line is read.
struct HistoryRow {
  int32_t agent = 0;  // index into HistoryShape::agents
  int32_t action = 0;
  float reward = 0;
  bool done = false;
  std::span<const float> state, next_state;
};

struct BadHistoryLine {
  int64_t number = 0;  // from 1
  std::string reason;
};

struct HistoryRead {
  int64_t lines = 0, rows = 0, bad = 0;   // empty lines are in none of these
  int32_t states = 0;                     // numbers of a state: the shape's, or what was found; 0: no good line
  int32_t largest_action = -1;            // of the good lines
  std::vector<int64_t> rows_of;           // by agent
  std::vector<BadHistoryLine> first_bad;  // at most kNamed
  // "3 of 1,200 lines are bad: line 7: ...; line 9: ..." or "".
  std::string complaint() const;
};

class HistoryReader {
 public:
  static constexpr size_t kNamed = 5, kLongestLine = size_t{1} << 20;

  using Taker = std::function<void(const HistoryRow&)>;
  HistoryReader(HistoryShape shape, Taker taker);

  void feed(std::string_view bytes);  // pieces of any size
  HistoryRead finish();               // the last line may lack its newline

 private:
  void line(std::string_view text);
  void refuse(std::string reason);

  HistoryShape shape_;
  Taker taker_;
  HistoryRead read_;
  std::string rest_;
  bool too_long_ = false;
  int64_t number_ = 0;
  std::vector<float> state_, next_;
};

// A whole file. Throws IoError if it can't be read, ConfigError if it holds no good line.
HistoryRead read_history(const std::filesystem::path& file, const HistoryShape& shape,
                         const HistoryReader::Taker& taker);

// One line, newline included, as the reader takes it; floats with the digits that bring back the same bits.
std::string history_line(std::string_view agent, const HistoryRow& row);

}  // namespace tandem
