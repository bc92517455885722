// world/chess/perft_positions.h -- positions with their counts, for tests and benchmarks.
#pragma once

#include <cstdint>
#include <ostream>
#include <utility>
#include <vector>

namespace tandem::chess {

struct PerftPosition {
  const char* name;
  const char* fen;
  std::vector<std::pair<int, uint64_t>> counts;  // depth, positions
};
inline std::ostream& operator<<(std::ostream& out, const PerftPosition& position) { return out << position.fen; }

// The six positions of Stockfish's tests/perft.sh, and the fourth with colours exchanged.
inline const std::vector<PerftPosition> kPerftPositions = {
    {"Start",
     "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1",
     {{1, 20}, {2, 400}, {3, 8902}, {4, 197281}, {5, 4865609}, {6, 119060324}}},
    {"Kiwipete",
     "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1",
     {{1, 48}, {2, 2039}, {3, 97862}, {4, 4085603}, {5, 193690690}, {6, 8031647685}}},
    {"Rooks",
     "8/2p5/3p4/KP5r/1R3p1k/8/4P1P1/8 w - - 0 1",
     {{1, 14}, {2, 191}, {3, 2812}, {4, 43238}, {5, 674624}, {6, 11030083}}},
    {"Promotions",
     "r3k2r/Pppp1ppp/1b3nbN/nP6/BBP1P3/q4N2/Pp1P2PP/R2Q1RK1 w kq - 0 1",
     {{1, 6}, {2, 264}, {3, 9467}, {4, 422333}, {5, 15833292}, {6, 706045033}}},
    {"PromotionsMirrored",
     "r2q1rk1/pP1p2pp/Q4n2/bbp1p3/Np6/1B3NBn/pPPP1PPP/R3K2R b KQ - 0 1",
     {{1, 6}, {2, 264}, {3, 9467}, {4, 422333}, {5, 15833292}, {6, 706045033}}},
    {"KnightOnF2",
     "rnbq1k1r/pp1Pbppp/2p5/8/2B5/8/PPP1NnPP/RNBQK2R w KQ - 1 8",
     {{1, 44}, {2, 1486}, {3, 62379}, {4, 2103487}, {5, 89941194}}},
    {"Symmetric",
     "r4rk1/1pp1qppp/p1np1n2/2b1p1B1/2B1P1b1/P1NP1N2/1PP1QPPP/R4RK1 w - - 0 10",
     {{1, 46}, {2, 2079}, {3, 89890}, {4, 3894594}, {5, 164075551}, {6, 6923051137}}},
};

// One rule at a time, each for both colours (Martin Sedlak's collection on talkchess.com).
inline const std::vector<PerftPosition> kEdgePositions = {
    {"EnPassantPinned", "8/5bk1/8/2Pp4/8/1K6/8/8 w - d6 0 1", {{6, 824064}}},
    {"EnPassantPinnedBlack", "8/8/1k6/8/2pP4/8/5BK1/8 b - d3 0 1", {{6, 824064}}},
    {"EnPassantGivesCheck", "8/5k2/8/2Pp4/2B5/1K6/8/8 w - d6 0 1", {{6, 1440467}}},
    {"EnPassantGivesCheckBlack", "8/8/1k6/2b5/2pP4/8/5K2/8 b - d3 0 1", {{6, 1440467}}},
    {"ShortCastlingGivesCheck", "5k2/8/8/8/8/8/8/4K2R w K - 0 1", {{6, 661072}}},
    {"ShortCastlingGivesCheckBlack", "4k2r/8/8/8/8/8/8/5K2 b k - 0 1", {{6, 661072}}},
    {"LongCastlingGivesCheck", "3k4/8/8/8/8/8/8/R3K3 w Q - 0 1", {{6, 803711}}},
    {"LongCastlingGivesCheckBlack", "r3k3/8/8/8/8/8/8/3K4 b q - 0 1", {{6, 803711}}},
    {"CastlingRightsLost", "r3k2r/1b4bq/8/8/8/8/7B/R3K2R w KQkq - 0 1", {{4, 1274206}}},
    {"CastlingRightsLostBlack", "r3k2r/7b/8/8/8/8/1B4BQ/R3K2R b KQkq - 0 1", {{4, 1274206}}},
    {"CastlingThroughCheck", "r3k2r/8/3Q4/8/8/5q2/8/R3K2R b KQkq - 0 1", {{4, 1720476}}},
    {"CastlingThroughCheckWhite", "r3k2r/8/5Q2/8/8/3q4/8/R3K2R w KQkq - 0 1", {{4, 1720476}}},
    {"CastlingWithAnotherRook", "1k6/1b6/8/8/7R/8/8/4K2R b K - 0 1", {{5, 1063513}}},
    {"CastlingWithAnotherRookBlack", "4k2r/8/8/7r/8/8/1B6/1K6 w k - 0 1", {{5, 1063513}}},
    {"LongCastlingWithAnotherRook", "1k6/8/8/8/R7/1n6/8/R3K3 b Q - 0 1", {{5, 346695}}},
    {"LongCastlingWithAnotherRookBlack", "r3k3/8/1N6/r7/8/8/8/1K6 w q - 0 1", {{5, 346695}}},
    {"PromotionOutOfCheck", "2K2r2/4P3/8/8/8/8/8/3k4 w - - 0 1", {{6, 3821001}}},
    {"PromotionOutOfCheckBlack", "3K4/8/8/8/8/8/4p3/2k2R2 b - - 0 1", {{6, 3821001}}},
    {"DiscoveredCheck", "5K2/8/1Q6/2N5/8/1p2k3/8/8 w - - 0 1", {{5, 1004658}}},
    {"DiscoveredCheckBlack", "8/8/1P2K3/8/2n5/1q6/8/5k2 b - - 0 1", {{5, 1004658}}},
    {"PromotionGivesCheck", "4k3/1P6/8/8/8/8/K7/8 w - - 0 1", {{6, 217342}}},
    {"PromotionGivesCheckBlack", "8/k7/8/8/8/8/1p6/4K3 b - - 0 1", {{6, 217342}}},
    {"UnderPromotionGivesCheck", "8/P1k5/K7/8/8/8/8/8 w - - 0 1", {{6, 92683}}},
    {"UnderPromotionGivesCheckBlack", "8/8/8/8/8/k7/p1K5/8 b - - 0 1", {{6, 92683}}},
    {"Stalemate", "K1k5/8/P7/8/8/8/8/8 w - - 0 1", {{6, 2217}}},
    {"StalemateBlack", "8/8/8/8/8/p7/8/k1K5 b - - 0 1", {{6, 2217}}},
    {"StalemateAndMate", "8/k1P5/8/1K6/8/8/8/8 w - - 0 1", {{7, 567584}}},
    {"StalemateAndMateBlack", "8/8/8/8/1k6/8/K1p5/8 b - - 0 1", {{7, 567584}}},
    {"DoubleCheck", "8/5k2/8/5N2/5Q2/2K5/8/8 w - - 0 1", {{4, 23527}}},
    {"DoubleCheckBlack", "8/8/2k5/5q2/5n2/8/5K2/8 b - - 0 1", {{4, 23527}}},
    // Two pawns leave the fifth rank at once and would uncover a rook; of two pawns that could capture, one is pinned.
    {"EnPassantOnTheKingsRank", "7k/8/8/K2pP2r/8/8/8/8 w - d6 0 1", {{1, 6}, {2, 78}, {3, 528}, {4, 8239}}},
    {"EnPassantOnTheKingsRankBlack", "8/8/8/8/k2Pp2R/8/8/7K b - d3 0 1", {{1, 6}, {2, 78}, {3, 528}, {4, 8239}}},
    {"EnPassantByOneOfTwo", "7k/8/1b6/2PpP3/8/8/8/6K1 w - d6 0 1", {{1, 8}, {2, 66}, {3, 489}, {4, 5011}}},
};

}  // namespace tandem::chess
