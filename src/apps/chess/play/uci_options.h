// apps/chess/play/uci_options.h -- the options of our UCI engine: declared, checked, and what they are set to.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/chess/play/player_choice.h"

namespace tandem::chess {

class UciOptions {
 public:
  explicit UciOptions(const PlayerChoice& choice);
  UciOptions(const UciOptions&) = delete;
  UciOptions& operator=(const UciOptions&) = delete;

  // The lines "option name ..." that answer `uci`.
  std::vector<std::string> declarations() const;
  // Returns what a user should know: a value that can't be taken (then nothing changes), or has no effect. Empty: fine.
  // Names are compared without regard to case; an unknown one is told of.
  std::string set(std::string_view name, std::string_view value);

  const PlaySettings& settings() const { return settings_; }
  int64_t nodes() const { return nodes_; }  // for a move, where `go` has no limit; 0: none
  int64_t seed() const { return seed_; }    // of every game; 0: another one each
  std::chrono::milliseconds overhead() const { return std::chrono::milliseconds(overhead_ms_); }

 private:
  struct Option {
    std::string name, type_and_default;
    std::function<std::string(std::string_view)> set;
  };
  void add_whole(const std::string& name, int64_t& value, int64_t least, int64_t most,
                 const std::function<void(int64_t)>& also = nullptr);

  std::string player_;
  bool has_network_;
  PlaySettings settings_;
  int64_t nodes_ = 0, seed_ = 0, overhead_ms_ = 50, depth_ = 0;
  std::vector<Option> options_;
};

}  // namespace tandem::chess
