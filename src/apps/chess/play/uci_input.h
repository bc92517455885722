// apps/chess/play/uci_input.h -- a line that a GUI sends to a UCI engine, read without any memory of its own.
//
// Any bytes are safe. As the protocol asks, words that nobody knows are passed over, before the command too: "joho
// debug on" is "debug on". What is understood and yet can't be used ("go depth many") is named in `complaint`, the rest
// of the line counts. All texts refer to the line, which must outlive them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tandem::chess {

enum class UciCommand : uint8_t {
  kNone,  // no command that the protocol knows
  kUci,
  kDebug,
  kIsReady,
  kSetOption,
  kRegister,
  kNewGame,
  kPosition,
  kGo,
  kStop,
  kPonderHit,
  kQuit,
};

// What stands behind `go`; times in milliseconds.
struct GoLimits {
  std::optional<int64_t> white_time, black_time, white_increment, black_increment, moves_to_go;
  std::optional<int64_t> move_time, nodes, depth, mate;
  bool infinite = false, ponder = false;
  std::string_view search_moves;
};

struct UciInput {
  UciCommand command = UciCommand::kNone;

  std::string_view option;                // setoption name ...
  std::optional<std::string_view> value;  // ... value ...

  bool from_start = false;  // position startpos
  std::string_view fen;     // position fen ...; empty where from_start, and where neither was said
  std::string_view moves;   // what stands behind "moves"

  GoLimits go;

  // The first word that could not be used, and why; empty: all could.
  std::string_view complaint_about, complaint;
};

UciInput read_uci_input(std::string_view line);

}  // namespace tandem::chess
