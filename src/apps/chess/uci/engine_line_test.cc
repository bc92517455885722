#include "apps/chess/uci/engine_line.h"

#include <gtest/gtest.h>

namespace tandem::chess {
namespace {

template <class Line>
Line read_as(std::string_view text) {
  const EngineLine line = read_engine_line(text);
  EXPECT_TRUE(std::holds_alternative<Line>(line)) << text;
  return std::holds_alternative<Line>(line) ? std::get<Line>(line) : Line{};
}

TEST(EngineLines, AreReadWhateverStandsBetweenTheWords) {
  read_as<EngineUciOk>("uciok");
  read_as<EngineReadyOk>("  readyok \t");
  EXPECT_EQ(read_as<EngineId>("id name Stockfish 15.1").text, "Stockfish 15.1");
  EXPECT_TRUE(read_as<EngineId>("id author  the  people ").is_author);
  EXPECT_EQ(read_as<EngineId>("id author  the  people ").text, "the  people");
  EXPECT_EQ(read_as<EngineBestMove>("bestmove e2e4 ponder e7e5").move, "e2e4");
  EXPECT_EQ(read_as<EngineBestMove>("bestmove").move, "");
  for (const char* const noise : {"", "   ", "Stockfish 15.1 by the developers", "uciokay", "id", "id age 5"})
    read_as<EngineNoise>(noise);
}

TEST(EngineLines, AnOptionHasNameTypeDefaultBoundsAndChoices) {
  const auto elo = read_as<EngineOption>("option name UCI_Elo type spin default 1350 min 1350 max 2850");
  EXPECT_EQ(elo.name, "UCI_Elo");
  EXPECT_EQ(elo.type, EngineOption::Type::kSpin);
  EXPECT_EQ(elo.least, 1350);
  EXPECT_EQ(elo.most, 2850);
  const auto style =
      read_as<EngineOption>("option name Playing Style type combo default Very Solid var Very Solid var Risky");
  EXPECT_EQ(style.name, "Playing Style");
  EXPECT_EQ(style.choices, (std::vector<std::string>{"Very Solid", "Risky"}));
  EXPECT_EQ(read_as<EngineOption>("option name Clear Hash type button").type, EngineOption::Type::kButton);
  EXPECT_EQ(read_as<EngineOption>("option name File type string default").type, EngineOption::Type::kString);
  EXPECT_EQ(read_as<EngineOption>("option name X type spin min many max 99999999999999999999").least, std::nullopt);
}

TEST(EngineLines, InfoGivesScoreDepthNodesAndLine) {
  const auto info = read_as<EngineInfo>(
      "info depth 8 seldepth 10 multipv 1 score cp -34 lowerbound nodes 20000 nps 1000 hashfull 3 pv e2e4 e7e5 g1f3");
  EXPECT_EQ(info.depth, 8);
  EXPECT_EQ(info.nodes, 20000);
  EXPECT_EQ(info.multipv, 1);
  EXPECT_EQ(info.score, (Score{.centipawns = -34}));
  EXPECT_EQ(info.line, (std::vector<std::string>{"e2e4", "e7e5", "g1f3"}));
  EXPECT_EQ(read_as<EngineInfo>("info score mate -3").score, (Score{.mate_in = -3}));
  EXPECT_EQ(read_as<EngineInfo>("info score mate -2147483648").score, (Score{.mate_in = -10'000})) << "it has an abs()";
  EXPECT_EQ(read_as<EngineInfo>("info score mate 2147483647").score, (Score{.mate_in = 10'000}));
  EXPECT_EQ(read_as<EngineInfo>("info score cp -2147483648").score, (Score{.centipawns = -1'000'000}));
  EXPECT_EQ(read_as<EngineInfo>("info score cp").score, std::nullopt);
  EXPECT_EQ(read_as<EngineInfo>("info score cp 9999999999999").score, std::nullopt);
  EXPECT_EQ(read_as<EngineInfo>("info string pv e2e4 depth 3").depth, std::nullopt);
  EXPECT_TRUE(read_as<EngineInfo>("info string pv e2e4 depth 3").line.empty());
  std::string endless = "info pv";
  for (int i = 0; i < 5000; ++i) endless += " e2e4";
  EXPECT_EQ(read_as<EngineInfo>(endless).line.size(), 256u);
}

TEST(EngineOptions, AreFoundInAnyCase) {
  const std::vector<EngineOption> options = {{.name = "UCI_Elo"}, {.name = "Hash"}};
  EXPECT_EQ(find_option(options, "uci_elo"), &options[0]);
  EXPECT_EQ(find_option(options, "hashes"), nullptr);
}

TEST(EngineOptions, ANumberIsBroughtIntoItsRangeWithAWord) {
  const EngineOption elo{.name = "UCI_Elo", .type = EngineOption::Type::kSpin, .least = 1350, .most = 2850};
  EXPECT_EQ(fit_option(elo, "1500").value, "1500");
  EXPECT_EQ(fit_option(elo, "1500").note, "");
  EXPECT_EQ(fit_option(elo, "900").value, "1350");
  EXPECT_EQ(fit_option(elo, "900").note, "UCI_Elo 900 is below its least, 1350 is used");
  EXPECT_EQ(fit_option(elo, "3000").note, "UCI_Elo 3000 is above its most, 2850 is used");
  EXPECT_NE(fit_option(elo, "strong").trouble, "");
}

TEST(EngineOptions, WhatIsNoValueOfTheirsIsRefused) {
  const EngineOption check{.name = "Ponder", .type = EngineOption::Type::kCheck};
  EXPECT_EQ(fit_option(check, "True").trouble, "");
  EXPECT_EQ(fit_option(check, "yes").trouble, "Ponder is true or false");
  const EngineOption combo{.name = "Style", .type = EngineOption::Type::kCombo, .choices = {"Solid", "Risky"}};
  EXPECT_EQ(fit_option(combo, "risky").trouble, "");
  EXPECT_EQ(fit_option(combo, "wild").trouble, "Style is one of: Solid, Risky");
}

}  // namespace
}  // namespace tandem::chess
