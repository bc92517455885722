// tests/chess/rules_tool.cc -- our side of python/chess_rules_test.py: what we make of games, positions and moves, as
// lines.
//
//   rules_tool games FIRST COUNT   random legal games, numbers FIRST and on
//   rules_tool fens                for each line, a FEN: the FEN as we write it, or the rules it breaks, or "syntax"
//   rules_tool sans                for each line, FEN|move: the move in UCI, or unreadable, illegal or ambiguous
//   rules_tool write-pgn COUNT     random games as PGN
//   rules_tool read-pgn            for each game: its moves, where it ends, its result and tags; or its fault
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "kernels/philox.h"
#include "world/chess/game.h"
#include "world/chess/notation.h"
#include "world/chess/perft_positions.h"
#include "world/chess/pgn.h"

namespace {

using namespace tandem;
using namespace tandem::chess;

// Most games of chess begin at the start; those of tests shall see castling, promotion and en passant too.
Position start_of_game(uint64_t number) {
  const size_t all = kPerftPositions.size() + kEdgePositions.size(), at = number / 2 % all;
  if (number % 2 == 0) return start_position();
  return position_of_fen(at < kPerftPositions.size() ? kPerftPositions[at].fen
                                                     : kEdgePositions[at - kPerftPositions.size()].fen);
}

// Random moves. For other ends than most random games have, every third game likes captures and pawn moves, and every
// fifth likes to take its own last move back.
Move random_move(const Game& game, const MoveList& list, uint64_t number) {
  const Position& position = game.position();
  const auto played = game.moves();
  const RandomKey key{.seed = 11, .step = number};
  const uint64_t draw = 2 * played.size();
  const Move any = list[random_below(key, draw, static_cast<uint32_t>(list.size))];
  const bool follows_habit = random_u32(key, draw + 1) % 4 != 0;
  if (!follows_habit || (number % 3 != 0 && number % 5 != 0)) return any;
  for (int i = 0; i < list.size; ++i) {
    const Move move = list[(i + any.from()) % list.size];
    if (number % 5 == 0) {
      const Move last = played.size() > 1 ? played[played.size() - 2] : Move();
      if (move.from() == last.to() && move.to() == last.from()) return move;
    } else if (has(position.occupied(), move.to()) || has(position.pawns, move.from())) {
      return move;
    }
  }
  return any;
}

// A line for each position: FEN|moves, each with its SAN|check|end by FIDE's rules|end at the first claim|claims|move
void write_game(uint64_t number) {
  Game game(start_of_game(number));
  fmt::print("game {}\n", number);
  while (true) {
    const Position& position = game.position();
    MoveList list;
    legal_moves(position, list);
    std::string moves;
    for (const Move move : list)
      moves += fmt::format("{}{}={}", moves.empty() ? "" : " ", uci_of(move), san_of(position, move));
    const GameResult fide = game.result(), first = game.result(DrawRules::at_first_claim());
    const Move move = fide.over() ? Move() : random_move(game, list, number);
    fmt::print("{}|{}|{}|{} {}|{} {}|{}{}|{}\n", fen_of(position), moves, in_check(position) ? "check" : "-",
               word_of(fide.end), fide.text(), word_of(first.end), first.text(),
               game.can_claim_fifty_moves() ? "50" : "-", game.can_claim_threefold_repetition() ? "3" : "-",
               uci_of(move));
    if (!move) return;
    game.play(move);
  }
}

void judge_fen(const std::string& line) {
  const FenReading reading = read_fen(line);
  std::string words;
  for (const BrokenRule& rule : reading.broken)
    words += fmt::format("{}{}", words.empty() ? "" : " ", word_of(rule.rule));
  fmt::print("{}\n", !reading.syntax.empty() ? "syntax" : reading.good() ? fen_of(reading.position) : words);
}

void judge_san(const std::string& line) {
  const size_t bar = line.find('|');
  const MoveReading reading = read_san(position_of_fen(line.substr(0, bar)), line.substr(bar + 1));
  static constexpr const char* kFaults[] = {"", "unreadable", "illegal", "ambiguous"};
  fmt::print("{}\n", reading.good() ? uci_of(reading.move) : kFaults[static_cast<size_t>(reading.fault)]);
}

void write_pgn(uint64_t number) {
  PgnGame pgn;
  pgn.game = Game(start_of_game(number));
  pgn.set_tag("White", fmt::format("player {}", number));
  pgn.set_tag("Annotator", "nobody");
  for (uint64_t ply = 0; ply < number % 300 && !pgn.game.result().over(); ++ply) {
    MoveList list;
    legal_moves(pgn.game.position(), list);
    pgn.game.play(random_move(pgn.game, list, number));
    pgn.comments.push_back(ply % 7 == 3 ? fmt::format("[%eval 0.{}] a comment", ply) : "");
  }
  pgn.result = pgn.game.result().text();
  fmt::print("{}", pgn_of(pgn));
}

void read_pgn() {
  PgnReader reader(std::cin);
  while (const auto pgn = reader.next()) {
    if (reader.fault()) {
      fmt::print("fault {}\n", reader.fault()->text());
      continue;
    }
    std::string moves;
    for (const Move move : pgn->game.moves()) moves += (moves.empty() ? "" : " ") + uci_of(move);
    fmt::print("{}|{}|{}|{}|{}\n", moves, fen_of(pgn->game.position()), pgn->result, pgn->tag("White"),
               pgn->tag("Event"));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  if (command == "games" && argc == 4) {
    const uint64_t first = std::strtoull(argv[2], nullptr, 10), count = std::strtoull(argv[3], nullptr, 10);
    for (uint64_t number = first; number < first + count; ++number) write_game(number);
    return 0;
  }
  if (command == "write-pgn" && argc == 3) {
    for (uint64_t number = 0; number < std::strtoull(argv[2], nullptr, 10); ++number) write_pgn(number);
    return 0;
  }
  if (command == "read-pgn") {
    read_pgn();
    return 0;
  }
  if (command != "fens" && command != "sans") {
    fmt::print(stderr, "usage: see the head of tests/chess/rules_tool.cc\n");
    return 2;
  }
  for (std::string line; std::getline(std::cin, line);) command == "fens" ? judge_fen(line) : judge_san(line);
  return 0;
}
