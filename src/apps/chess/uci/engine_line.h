// apps/chess/uci/engine_line.h -- what an engine says, line by line, in the Universal Chess Interface.
//
// Pure functions of a line: any bytes are safe, what is not understood is EngineNoise, and what is kept of a line is
// bounded by its length. Unknown words inside a known line are passed over, as the protocol asks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "world/chess/players/player.h"

namespace tandem::chess {

struct EngineNoise {};    // nothing of UCI that a match needs
struct EngineUciOk {};    // uciok
struct EngineReadyOk {};  // readyok
struct EngineId {         // id name Stockfish 15.1
  bool is_author = false;
  std::string text;
};
struct EngineOption {  // option name UCI_Elo type spin default 1350 min 1350 max 2850
  enum class Type : uint8_t { kCheck, kSpin, kCombo, kButton, kString, kUnknown };
  std::string name;
  Type type = Type::kUnknown;
  std::optional<int64_t> least, most;
  std::vector<std::string> choices;
};
struct EngineInfo {  // info depth 8 score cp 34 nodes 20000 pv e2e4 e7e5
  std::optional<int64_t> depth, nodes, multipv;
  std::optional<Score> score;
  std::vector<std::string> line;  // moves in UCI notation, not looked at
};
struct EngineBestMove {  // bestmove e2e4 ponder e7e5
  std::string move;      // as it was said: it may be no move
};
using EngineLine =
    std::variant<EngineNoise, EngineUciOk, EngineReadyOk, EngineId, EngineOption, EngineInfo, EngineBestMove>;

EngineLine read_engine_line(std::string_view line);

// The option by its name, in any case, as engines take it; null: it has none.
const EngineOption* find_option(const std::vector<EngineOption>& options, std::string_view name);

// What an engine may be told for an option: the value as it should be sent, and what was changed about it.
struct FittedOption {
  std::string value;
  std::string note;     // "UCI_Elo 900 is below its least, 1350 is used": empty where nothing was changed
  std::string trouble;  // why the engine would not take it; empty: it will
};
FittedOption fit_option(const EngineOption& option, std::string_view value);

}  // namespace tandem::chess
