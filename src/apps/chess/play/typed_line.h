// apps/chess/play/typed_line.h -- what a person types in a game: a command or a move, as tolerantly as it is
// unambiguous.
#pragma once

#include <string>
#include <string_view>

#include "world/chess/notation.h"
#include "world/chess/position.h"

namespace tandem::chess {

enum class TypedCommand : uint8_t {
  kNone,
  kMove,
  kHelp,
  kMoves,
  kUndo,
  kDraw,
  kResign,
  kFlip,
  kFen,
  kPgn,
  kNew,
  kQuit
};

struct TypedLine {
  TypedCommand command = TypedCommand::kNone;  // kNone: nothing was typed; kMove: whatever is no command
  std::string word;                            // as it was typed
  std::string rest;                            // what stands behind it
};
TypedLine read_typed_line(std::string_view line);

// As read_move(); where that finds none, also with other capitals: "nf3", "E2E4", "o-o".
MoveReading read_typed_move(const Position& position, std::string_view text);

// The command that a word nearly is; empty: none.
std::string nearest_command(std::string_view word);

}  // namespace tandem::chess
