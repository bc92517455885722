// Counts of positions that many programs agree on: they go wrong with any fault of move generation or make_move().
#include "world/chess/perft.h"

#include <gtest/gtest.h>

#include <numeric>

#include "world/chess/fen.h"
#include "world/chess/move_functions.h"
#include "world/chess/perft_positions.h"

namespace tandem::chess {
namespace {

class Perft : public testing::TestWithParam<PerftPosition> {};
INSTANTIATE_TEST_SUITE_P(Known, Perft, testing::ValuesIn(kPerftPositions),
                         [](const auto& info) { return std::string(info.param.name); });

// bench/chess_perft goes on from here.
constexpr int kDeepest = 5;
// The slow variants a ply less deep.
constexpr uint64_t kMostForEachCpu = 5'000'000;

void expect_counts_on_each_cpu(const PerftPosition& known) {
  const Position position = position_of_fen(known.fen);
  for (const MoveFunctions* functions : {portable_moves(), bmi2_moves(), pext_moves()}) {
    if (!functions) continue;
    for (const auto& [depth, nodes] : known.counts) {
      if (nodes > kMostForEachCpu) continue;
      EXPECT_EQ(functions->perft(position, depth), nodes)
          << known.name << ", depth " << depth << ", " << functions->name;
    }
  }
}

TEST_P(Perft, IsWhatOtherProgramsCount) {
  const Position position = position_of_fen(GetParam().fen);
  for (const auto& [depth, nodes] : GetParam().counts) {
    if (depth > kDeepest) continue;
    EXPECT_EQ(perft(position, depth), nodes) << "depth " << depth;
  }
}

TEST_P(Perft, IsTheSameForEveryKindOfCpu) { expect_counts_on_each_cpu(GetParam()); }

TEST(PerftEdge, OneRuleAtATimeForBothColours) {
  for (const PerftPosition& known : kEdgePositions) expect_counts_on_each_cpu(known);
}

TEST(PerftDivided, AddsUp) {
  for (const PerftPosition& known : kPerftPositions) {
    const Position position = position_of_fen(known.fen);
    const std::vector<PerftMove> moves = perft_divided(position, 3);
    const uint64_t sum = std::accumulate(moves.begin(), moves.end(), uint64_t{0},
                                         [](uint64_t before, const PerftMove& move) { return before + move.nodes; });
    EXPECT_EQ(sum, perft(position, 3)) << known.name;
  }
}

TEST(PerftDivided, TellsHowFarItIs) {
  std::vector<PerftProgress> reported;
  const auto moves =
      perft_divided(start_position(), 4, [&](const PerftProgress& progress) { reported.push_back(progress); });
  ASSERT_EQ(reported.size(), 400u);
  EXPECT_EQ(reported.front().parts, 1);
  EXPECT_EQ(reported.front().all_parts, 400);
  EXPECT_EQ(reported.back().parts, 400);
  EXPECT_EQ(reported.back().nodes, 197281u);
  EXPECT_EQ(moves.front().nodes, perft_divided(start_position(), 4).front().nodes);
}

TEST(PerftDepth, ZeroIsThePositionItself) {
  EXPECT_EQ(perft(start_position(), 0), 1u);
  EXPECT_TRUE(perft_divided(start_position(), 0).empty());
}

}  // namespace
}  // namespace tandem::chess
