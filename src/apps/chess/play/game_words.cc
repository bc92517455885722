#include "apps/chess/play/game_words.h"

#include <fmt/format.h>

namespace tandem::chess {

const std::string_view kTypedHelp =
    "  e4  Nf3  exd5  e8=Q  O-O   a move; e2e4, e7e8q and e1g1 will do as well\n"
    "  moves                      all moves that you may make\n"
    "  undo                       takes back your last move, and the answer to it\n"
    "  draw                       claims a draw, where the rules give you one\n"
    "  resign                     gives up this game\n"
    "  flip                       turns the board\n"
    "  fen                        prints the position\n"
    "  pgn [FILE]                 prints the game, or adds it to a file\n"
    "  new [white|black]          another game\n"
    "  quit                       ends; so does Ctrl-D\n";

std::string why_over(GameEnd end, const DrawRules& rules) {
  switch (end) {
    case GameEnd::kCheckmate:
      return "checkmate";
    case GameEnd::kStalemate:
      return "stalemate: no legal move, and no check";
    case GameEnd::kDeadPosition:
      return "neither side has what it takes to mate";
    case GameEnd::kMoveRule:
      return fmt::format("{} moves of each side without capture or pawn move", rules.moves);
    case GameEnd::kRepetition:
      return fmt::format("the same position for the {} time", rules.repetitions == 3 ? "third" : "fifth");
    case GameEnd::kNone:
      break;
  }
  return "";
}

std::string score_in_words(const Thought& thought) {
  if (!thought.score) return "";
  if (thought.score->mate_in) return fmt::format("   (mate in {}, depth {})", *thought.score->mate_in, thought.depth);
  return fmt::format("   ({:+.2f}, depth {})", thought.score->centipawns / 100.0, thought.depth);
}

}  // namespace tandem::chess
