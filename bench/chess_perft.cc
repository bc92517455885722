// bench/chess_perft.cc -- positions a second on one core: counted (perft) to depth 6 with every count checked, by each
// variant of move generation that this CPU has; and played, with list, action mask and move, as self-play does.
//
// The core's time, not the clock's: others may be using the machine. The best of three, where one takes under 2 s.
// Exit 1 if a count is wrong.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <ctime>

#include "kernels/philox.h"
#include "world/chess/action_code.h"
#include "world/chess/fen.h"
#include "world/chess/game.h"
#include "world/chess/move_functions.h"
#include "world/chess/perft_positions.h"

namespace {

using namespace tandem;
using namespace tandem::chess;

double core_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

struct Measured {
  uint64_t nodes = 0;
  double seconds = 0;
};

Measured measure(const MoveFunctions& functions, const Position& position, int depth) {
  Measured best{.seconds = 1e9};
  for (int run = 0; run < 3; ++run) {
    const double begin = core_seconds();
    const uint64_t nodes = functions.perft(position, depth);
    const double seconds = core_seconds() - begin;
    best = {nodes, std::min(best.seconds, seconds)};
    if (seconds > 2) break;
  }
  return best;
}

// All positions with at most `most` nodes, each to its deepest such count. False: a count was wrong.
bool count_all(const MoveFunctions& functions, uint64_t most) {
  bool right = true;
  Measured all;
  for (const PerftPosition& known : kPerftPositions) {
    auto deepest = known.counts.front();
    for (const auto& one : known.counts)
      if (one.second <= most) deepest = one;
    const Measured one = measure(functions, position_of_fen(known.fen), deepest.first);
    right = right && one.nodes == deepest.second;
    all = {all.nodes + one.nodes, all.seconds + one.seconds};
    std::printf("%-9s %-19s depth %d %12" PRIu64 " %8.1f M nodes/s %s\n", functions.name, known.name, deepest.first,
                one.nodes, static_cast<double>(one.nodes) / one.seconds * 1e-6,
                one.nodes == deepest.second ? "" : "WRONG");
    std::fflush(stdout);
  }
  std::printf("%-9s %-19s %20" PRIu64 " %8.1f M nodes/s\n\n", functions.name, "all", all.nodes,
              static_cast<double>(all.nodes) / all.seconds * 1e-6);
  return right;
}

// Random games from the start: the list of legal moves, their mask, a move, its end.
void play_games() {
  constexpr int kPlies = 1'000'000;
  Game game;
  uint64_t bits = 0;
  const double begin = core_seconds();
  for (uint64_t ply = 0; ply < kPlies; ++ply) {
    MoveList list;
    legal_moves(game.position(), list);
    const ActionMask mask = legal_action_mask(list, game.position().side_to_move);
    bits += mask.word[ply % kActionTypes];
    if (list.size == 0 || game.result(DrawRules::at_first_claim()).over())
      game = Game();
    else
      game.play(list[random_below({.seed = 1}, ply, static_cast<uint32_t>(list.size))]);
  }
  std::printf("played    list, mask, end and move: %.2f M positions/s (%" PRIu64 ")\n",
              kPlies / (core_seconds() - begin) * 1e-6, bits % 10);
}

}  // namespace

int main() {
  constexpr uint64_t kAll = UINT64_MAX, kSome = 200'000'000;
  const MoveFunctions& fastest = fastest_moves();
  bool right = count_all(fastest, kAll);
  for (const MoveFunctions* functions : {pext_moves(), bmi2_moves(), portable_moves()})
    if (functions && functions != &fastest) right = count_all(*functions, kSome) && right;
  play_games();
  return right ? 0 : 1;
}
