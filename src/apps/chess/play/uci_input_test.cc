// What GUIs send, and what they should not.
#include "apps/chess/play/uci_input.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "apps/chess/play/uci_position.h"
#include "world/chess/fen.h"
#include "world/chess/notation.h"

namespace tandem::chess {
namespace {

TEST(UciInputLine, UnknownWordsArePassedOver) {
  EXPECT_EQ(read_uci_input("joho debug on").command, UciCommand::kDebug);
  EXPECT_EQ(read_uci_input("  \t isready \r").command, UciCommand::kIsReady);
  EXPECT_EQ(read_uci_input("hello there").command, UciCommand::kNone);
  EXPECT_EQ(read_uci_input("").command, UciCommand::kNone);
  EXPECT_EQ(read_uci_input("ISREADY").command, UciCommand::kNone) << "commands are in small letters";
  const UciInput go = read_uci_input("go quickly depth 3 please nodes 9");
  EXPECT_EQ(go.go.depth, 3);
  EXPECT_EQ(go.go.nodes, 9);
  EXPECT_TRUE(go.complaint.empty());
}

TEST(UciInputLine, GoTakesEveryLimit) {
  const GoLimits go =
      read_uci_input("go ponder wtime 1 btime 2 winc 3 binc 4 movestogo 5 depth 6 nodes 7 mate 8 movetime 9 infinite")
          .go;
  EXPECT_EQ(go.white_time, 1);
  EXPECT_EQ(go.black_time, 2);
  EXPECT_EQ(go.white_increment, 3);
  EXPECT_EQ(go.black_increment, 4);
  EXPECT_EQ(go.moves_to_go, 5);
  EXPECT_EQ(go.depth, 6);
  EXPECT_EQ(go.nodes, 7);
  EXPECT_EQ(go.mate, 8);
  EXPECT_EQ(go.move_time, 9);
  EXPECT_TRUE(go.ponder && go.infinite);
  const GoLimits none = read_uci_input("go").go;
  EXPECT_FALSE(none.white_time || none.depth || none.nodes || none.infinite || none.ponder);
}

TEST(UciInputLine, WhatIsNoNumberIsNamedAndTheRestCounts) {
  const UciInput input = read_uci_input("go depth many nodes 5 movetime");
  EXPECT_FALSE(input.go.depth);
  EXPECT_EQ(input.go.nodes, 5);
  EXPECT_EQ(input.complaint_about, "depth");
  const UciInput swallowed = read_uci_input("go depth nodes 5");
  EXPECT_EQ(swallowed.go.nodes, 5) << "the missing number takes no other limit with it";
  EXPECT_EQ(swallowed.complaint_about, "depth");
}

TEST(UciInputLine, NumbersBeyondAllBoundsAreTheNearest) {
  const GoLimits go = read_uci_input("go wtime -99999999999999999999 nodes 99999999999999999999").go;
  EXPECT_EQ(go.white_time, std::numeric_limits<int64_t>::min());
  EXPECT_EQ(go.nodes, std::numeric_limits<int64_t>::max());
}

TEST(UciInputLine, SearchMovesEndAtTheNextLimit) {
  const GoLimits go = read_uci_input("go searchmoves e2e4 d2d4 depth 4").go;
  EXPECT_EQ(go.search_moves, "e2e4 d2d4");
  EXPECT_EQ(go.depth, 4);
  EXPECT_EQ(read_uci_input("go depth 4 searchmoves e2e4").go.search_moves, "e2e4");
}

TEST(UciInputLine, NamesAndValuesOfOptionsMayHaveBlanks) {
  UciInput input = read_uci_input("setoption name Move Overhead value 100");
  EXPECT_EQ(input.option, "Move Overhead");
  EXPECT_EQ(input.value, "100");
  input = read_uci_input("setoption name WeightsFile value /a folder/value of it ");
  EXPECT_EQ(input.option, "WeightsFile");
  EXPECT_EQ(input.value, "/a folder/value of it");
  input = read_uci_input("setoption name Clear Hash");
  EXPECT_EQ(input.option, "Clear Hash");
  EXPECT_FALSE(input.value);
  EXPECT_EQ(read_uci_input("setoption name Nodes value").value, "");
  EXPECT_EQ(read_uci_input("setoption Nodes value 3").complaint_about, "setoption");
}

TEST(UciInputLine, APositionHasAFenOrTheStart) {
  UciInput input = read_uci_input("position startpos moves e2e4 e7e5");
  EXPECT_TRUE(input.from_start);
  EXPECT_EQ(input.moves, "e2e4 e7e5");
  input = read_uci_input("position fen 4k3/8/8/8/8/8/4P3/4K3 w - - 0 1 moves e2e4");
  EXPECT_FALSE(input.from_start);
  EXPECT_EQ(input.fen, "4k3/8/8/8/8/8/4P3/4K3 w - - 0 1");
  EXPECT_EQ(input.moves, "e2e4");
  EXPECT_TRUE(read_uci_input("position startpos").moves.empty());
  EXPECT_EQ(read_uci_input("position moves e2e4").complaint_about, "position");
}

std::string set(UciPosition& position, const std::string& line) { return position.set(line, read_uci_input(line)); }

TEST(UciPositionLines, ALineThatExtendsTheLastOneIsReadFromThereOn) {
  UciPosition position;
  std::string line = "position startpos moves";
  const char* const kRound[] = {"g1f3", "g8f6", "f3g1", "f6g8"};
  for (int i = 0; i < 400; ++i) {
    line += std::string(" ") + kRound[i % 4];
    ASSERT_EQ(set(position, line), "");
  }
  EXPECT_EQ(position.game().moves().size(), 400u);
  EXPECT_EQ(position.moves_read(), 400) << "each move once, not the whole game each time";
  EXPECT_EQ(position.game().repetitions(), 101);
  ASSERT_EQ(set(position, "position startpos moves g1f3"), "");
  EXPECT_EQ(position.game().moves().size(), 1u) << "moves may be taken back";
}

TEST(UciPositionLines, OnlyWholeWordsExtendALine) {
  UciPosition position;
  const std::string start = "position fen 8/P3k3/8/8/8/8/8/4K3 w - - 0 1 moves ";
  EXPECT_NE(set(position, start + "a7a8"), "") << "what does it become?";
  EXPECT_EQ(set(position, "position startpos moves a2a3"), "");
  EXPECT_EQ(set(position, start + "a7a8n"), "");
  EXPECT_EQ(fen_of(position.game().position()), "N7/4k3/8/8/8/8/8/4K3 b - - 0 1");
  EXPECT_NE(set(position, start + "a7a8nx"), "");
}

TEST(UciPositionLines, AnIllegalMoveIsNamedAndThePositionStays) {
  UciPosition position;
  ASSERT_EQ(set(position, "position startpos moves e2e4"), "");
  for (const char* line : {"position startpos moves e2e4 e7e5 e4e5 g8f6",  // goes on from the last one
                           "position startpos moves d2d4 e7e5 e2e5"}) {    // does not
    const std::string fault = set(position, line);
    EXPECT_NE(fault.find("number 3"), std::string::npos) << fault;
    EXPECT_NE(fault.find("e5"), std::string::npos) << fault;
    EXPECT_EQ(position.game().moves().size(), 1u);
  }
  EXPECT_NE(set(position, "position fen 8/8/8/8/8/8/8/8 w - - 0 1"), "");
  EXPECT_NE(set(position, "position fen nonsense"), "");
  EXPECT_EQ(position.game().moves().size(), 1u);
  EXPECT_EQ(set(position, "position startpos moves e2e4 e7e5"), "") << "and goes on from it";
}

TEST(UciPositionLines, WhatIsToldOfALineIsBounded) {
  UciPosition position;
  EXPECT_LT(set(position, "position startpos moves " + std::string(1'000'000, 'e')).size(), 300u);
  EXPECT_LT(set(position, "position fen " + std::string(1'000'000, 'k')).size(), 500u);
}

}  // namespace
}  // namespace tandem::chess
