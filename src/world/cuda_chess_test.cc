// The kernels of chess, emulated on the CPU, beside the functions of chess/.
#include "world/cuda_chess.cu"  // NOLINT(bugprone-suspicious-include)

#include <gtest/gtest.h>

#include <vector>

#include "world/chess/fen.h"
#include "world/chess/perft_positions.h"
#include "world/chess_games_for_tests.h"
#include "world/chess_gpu_sliders.h"
#include "world/cuda_chess_perft.cu"  // NOLINT(bugprone-suspicious-include)
#include "world/gpu_perft.h"

namespace tandem {
namespace {

using namespace chess;

// The same results whichever thread of a block runs first.
class ChessOnGpu : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override { cuda_on_cpu::last_thread_first = GetParam(); }
  void TearDown() override { cuda_on_cpu::last_thread_first = false; }

  const ChessKernels& kernels = cuda::chess_kernels();
};
INSTANTIATE_TEST_SUITE_P(EitherOrderOfThreads, ChessOnGpu, testing::Bool());

ChessGames games_of(ChessArrays& a) { return {a.positions.data(), a.histories.data(), a.ends.data()}; }
ChessLegal legal_of(ChessArrays& a) { return {a.counts.data(), a.moves.data(), a.masks.data()}; }

TEST_P(ChessOnGpu, GamesAreThoseOfTheCpu) {
  constexpr size_t kGames = 150;  // two blocks and a part of another
  constexpr uint64_t kSteps = 120;
  const std::vector<Position> starts = chess_test_positions();
  ChessGamesBeside beside(starts, kGames);
  ChessArrays gpu(kGames);
  unsigned long long refused = 0;
  kernels.begin(games_of(gpu), kGames, starts.data(), static_cast<int64_t>(starts.size()), false, nullptr);
  for (uint64_t step = 0; step < kSteps; ++step) {
    const DrawRules rules = step % 3 == 0 ? DrawRules::at_first_claim() : DrawRules::fide();
    kernels.look(games_of(gpu), kGames, legal_of(gpu), rules, nullptr);
    ASSERT_EQ(beside.look(gpu, rules), "") << "step " << step;
    gpu.actions = beside.choose(step);
    kernels.play(games_of(gpu), kGames, {gpu.actions.data(), gpu.masks.data(), &refused}, nullptr);
    beside.play(gpu.actions);
    ASSERT_EQ(beside.played(gpu), "") << "step " << step;
    if (step % 8 != 7) continue;
    kernels.begin(games_of(gpu), kGames, starts.data(), static_cast<int64_t>(starts.size()), true, nullptr);
    beside.begin_those_over();
    ASSERT_EQ(beside.played(gpu), "") << "step " << step << ", begun anew";
  }
  EXPECT_EQ(refused, 0u);
  for (const GameEnd end : {GameEnd::kNone, GameEnd::kCheckmate, GameEnd::kStalemate, GameEnd::kDeadPosition,
                            GameEnd::kMoveRule, GameEnd::kRepetition})
    EXPECT_GT(beside.ended(end), 0) << static_cast<int>(end);
  for (int kind = 0; kind < 8; ++kind) EXPECT_GT(beside.made_of_kind(static_cast<MoveKind>(kind)), 0) << kind;
}

TEST_P(ChessOnGpu, WhatIsNotWantedIsNotWritten) {
  const std::vector<Position> positions = chess_test_positions();
  const auto n = static_cast<int64_t>(positions.size());
  ChessArrays all(positions.size());
  kernels.legal(positions.data(), n, legal_of(all), nullptr);
  ChessArrays one(positions.size());
  kernels.legal(positions.data(), n, {one.counts.data(), nullptr, nullptr}, nullptr);
  EXPECT_EQ(one.counts, all.counts);
  kernels.legal(positions.data(), n, {nullptr, nullptr, one.masks.data()}, nullptr);
  EXPECT_EQ(std::memcmp(one.masks.data(), all.masks.data(), sizeof(ActionMask) * positions.size()), 0);
  kernels.legal(positions.data(), n, {nullptr, one.moves.data(), nullptr}, nullptr);
  for (size_t i = 0; i < positions.size(); ++i) {
    const auto first = static_cast<std::ptrdiff_t>(i * kMostMoves);
    EXPECT_TRUE(
        std::equal(one.moves.begin() + first, one.moves.begin() + first + all.counts[i], all.moves.begin() + first))
        << i;
  }
  EXPECT_EQ(*std::max_element(all.counts.begin(), all.counts.end()), count_legal_moves(positions[12]));
  EXPECT_GT(count_legal_moves(positions[12]), 218);
}

TEST_P(ChessOnGpu, OnlyLegalActionsOfGamesThatGoOnArePlayed) {
  const Position start = start_position();
  ChessArrays gpu(5);
  unsigned long long refused = 0;
  kernels.begin(games_of(gpu), 5, &start, 1, false, nullptr);
  kernels.look(games_of(gpu), 5, legal_of(gpu), {}, nullptr);
  gpu.ends[4] = GameEnd::kRepetition;
  const int pawn = action_of(Move(12, 28, MoveKind::kDoubleStep), Side::kWhite);
  const int rook = action_of(Move(0, 24), Side::kWhite);
  gpu.actions = {pawn, -1, rook, kActionCount, pawn};
  kernels.play(games_of(gpu), 5, {gpu.actions.data(), gpu.masks.data(), &refused}, nullptr);
  EXPECT_EQ(gpu.positions[0], after(start, Move(12, 28, MoveKind::kDoubleStep)));
  for (size_t i = 1; i < 5; ++i) EXPECT_EQ(gpu.positions[i], start) << i;
  EXPECT_EQ(refused, 2u);
  gpu.actions.assign(5, -2);
  kernels.play(games_of(gpu), 5, {gpu.actions.data(), gpu.masks.data(), &refused}, nullptr);
  EXPECT_EQ(refused, 6u) << "not of the game that is over";
}

TEST_P(ChessOnGpu, NothingIsPlayedBeyondTheLongestClock) {
  const Position late = chess_test_position("8/8/8/8/4k3/8/1R4P1/K7 w - - 150 120");
  ChessArrays gpu(2);
  unsigned long long refused = 0;
  kernels.begin(games_of(gpu), 2, &late, 1, false, nullptr);
  kernels.legal(gpu.positions.data(), 2, legal_of(gpu), nullptr);  // nobody looks whether they are over
  const Move quiet(9, 10), pawn(14, 22);
  gpu.actions = {action_of(quiet, Side::kWhite), action_of(pawn, Side::kWhite)};
  kernels.play(games_of(gpu), 2, {gpu.actions.data(), gpu.masks.data(), &refused}, nullptr);
  EXPECT_EQ(gpu.positions[0], late);
  EXPECT_EQ(gpu.positions[1], after(late, pawn));
  EXPECT_EQ(refused, 1u);
}

TEST(ChessKernels, DrawsLaterThanTheLongestClockAreRefused) {
  ChessArrays gpu(1);
  EXPECT_THROW(cuda::chess_kernels().look(games_of(gpu), 1, legal_of(gpu), {.repetitions = 5, .moves = 76}, nullptr),
               std::invalid_argument);
}

TEST_P(ChessOnGpu, PerftIsThatOfTheCpu) {
  // So little room that plies are followed in parts, and parts must be halved.
  GpuPerft little(cpu_device(), kernels, nullptr, {.last_ply = 3000, .ply = 500});
  GpuPerft plenty(cpu_device(), kernels, nullptr, {.last_ply = 1 << 20, .ply = 1 << 16});
  const std::vector<Position> positions = chess_test_positions();
  for (size_t i = 0; i < positions.size(); ++i)
    for (int depth = 1; depth <= (positions[i].fullmove_number < 2 && i < 4 ? 3 : 4); ++depth) {
      if (i == 11 || i == 12) continue;  // too many moves for an emulator
      const std::vector<PerftMove> expected = perft_divided(positions[i], depth);
      for (GpuPerft* gpu : {&little, &plenty}) {
        const std::vector<PerftMove> found = gpu->divided(positions[i], depth);
        ASSERT_EQ(found.size(), expected.size());
        for (size_t m = 0; m < expected.size(); ++m) {
          EXPECT_EQ(found[m].move, expected[m].move);
          EXPECT_EQ(found[m].nodes, expected[m].nodes) << "position " << i << " depth " << depth;
        }
      }
    }
}

// One rule at a time: en passant in pins, castling through check, promotions, stalemate. As deep as an emulator can.
TEST_P(ChessOnGpu, PerftOfEveryEdgePositionIsThatOfTheCpu) {
  constexpr uint64_t kMost = 100'000;
  GpuPerft gpu(cpu_device(), kernels, nullptr, {.last_ply = 3000, .ply = 500});
  for (const PerftPosition& edge : kEdgePositions) {
    const Position position = position_of_fen(edge.fen);
    int deepest = 0;
    for (int depth = 2; depth <= 4 && perft(position, depth) <= kMost; ++depth) {
      uint64_t nodes = 0;
      for (const PerftMove& one : gpu.divided(chess_test_position(edge.fen), depth)) nodes += one.nodes;
      EXPECT_EQ(nodes, perft(position, depth)) << edge.name << " depth " << depth;
      deepest = depth;
    }
    EXPECT_GE(deepest, 2) << edge.name;
  }
}

// Black moves the knight; then White has more than 208 moves, so that those of two positions find no room.
TEST_P(ChessOnGpu, PerftNeedsRoomForTheMovesOfOnePositionOnly) {
  GpuPerft least(cpu_device(), kernels, nullptr, {.last_ply = 1, .ply = 1});
  const Position many = chess_test_position("1Q4QK/4Q3/Q1Q4Q/Q4Q2/3Q4/1Q4Q1/pp2Q3/kBQ4n b - - 0 1");
  const std::vector<PerftMove> expected = perft_divided(many, 3), found = least.divided(many, 3);
  ASSERT_EQ(found.size(), expected.size());
  ASSERT_GT(expected.size(), 1u);
  for (size_t m = 0; m < expected.size(); ++m) EXPECT_EQ(found[m].nodes, expected[m].nodes) << m;
}

TEST_P(ChessOnGpu, ChildrenWithoutRoomAreCountedButNotListed) {
  const std::vector<Position> positions(40, start_position());  // a warp and a part of another: 640 and 160 moves
  constexpr PerftChild kUntouched{7, 7};
  for (const int64_t room : {int64_t{640}, int64_t{639}, int64_t{0}}) {
    std::vector<PerftChild> children(1000, kUntouched);
    unsigned long long total = 0;
    kernels.perft_list(positions.data(), 40, children.data(), room, &total, nullptr);
    EXPECT_EQ(total, 800u);
    for (size_t i = static_cast<size_t>(room); i < children.size(); ++i) {
      EXPECT_EQ(children[i].parent, kUntouched.parent) << i;
      EXPECT_EQ(children[i].move, kUntouched.move) << i;
    }
  }
}

TEST(ChessKernels, SlidersSeeWhatTheCpuSees) {
  for (uint64_t n = 0; n < 2000; ++n)
    for (Square square = 0; square < 64; ++square) {
      const RandomKey key{3, n, 0, 0};
      const auto word = [&](uint64_t k) { return uint64_t{random_u32(key, 2 * k)} << 32 | random_u32(key, 2 * k + 1); };
      const uint64_t index = static_cast<uint64_t>(square) * 2;
      const Bitboard occupied = word(index) & (n % 2 ? word(index + 1) : ~Bitboard{0});
      ASSERT_EQ(GpuSliders::diagonal(square, occupied), ComputedSliders::diagonal(square, occupied));
      ASSERT_EQ(GpuSliders::straight(square, occupied), ComputedSliders::straight(square, occupied));
    }
}

TEST(ChessKernels, TheTestsPositionsArePossible) {
  for (const Position& position : chess_test_positions()) {
    const FenReading reading = read_fen(fen_of(position));
    EXPECT_TRUE(reading.good()) << fen_of(position) << ": " << reading.complaint();
    EXPECT_EQ(reading.position, position) << fen_of(position);
  }
}

TEST(ChessKernels, ColoursAreExchangedAndBack) {
  for (const Position& position : chess_test_positions()) {
    const Position seen = colours_exchanged(position);
    EXPECT_EQ(seen.king(Side::kWhite), mirrored(position.king(Side::kBlack)));
    EXPECT_NE(seen.side_to_move, position.side_to_move);
    EXPECT_EQ(colours_exchanged(seen), position);
  }
}

}  // namespace
}  // namespace tandem
