// `tandem perft` as a person or a script calls it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "command/run_program.h"

namespace tandem {
namespace {

TEST(PerftVerb, PrintsTheCountAndTellsTheSpeed) {
  const Sandbox box;
  const ProgramResult result = box.run({"perft", "4"});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out, "197281\n");
  EXPECT_NE(result.err.find("nodes/s on one CPU core"), std::string::npos) << result.err;
  EXPECT_EQ(box.run({"perft", "0", "-q"}).out, "1\n");
  EXPECT_EQ(box.run({"perft", "4", "-q"}).err, "");
}

TEST(PerftVerb, TakesAFenAsOneWordOrAsItsFields) {
  const Sandbox box;
  EXPECT_EQ(box.run({"perft", "3", "8/2p5/3p4/KP5r/1R3p1k/8/4P1P1/8 w - - 0 1"}).out, "2812\n");
  EXPECT_EQ(box.run({"perft", "3", "8/2p5/3p4/KP5r/1R3p1k/8/4P1P1/8", "w", "-", "-", "0", "1"}).out, "2812\n");
  EXPECT_EQ(box.run({"perft", "2", "--divide", "7k/8/8/8/8/8/r7/7K w - - 0 1"}).out, "h1g1: 17\n17\n");
}

TEST(PerftVerb, DividesByFirstMoveInOrderOfTheirNames) {
  const Sandbox box;
  const std::string out = box.run({"perft", "3", "--divide"}).out;
  EXPECT_TRUE(out.starts_with("a2a3: 380\na2a4: 420\nb1a3: 400\n")) << out;
  EXPECT_TRUE(out.ends_with("h2h4: 420\n8902\n")) << out;
  const auto json = nlohmann::json::parse(box.run({"perft", "3", "--divide", "--json"}).out);
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["nodes"], 8902);
  EXPECT_EQ(json["depth"], 3);
  EXPECT_EQ(json["fen"], "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1");
  EXPECT_EQ(json["moves"].size(), 20u);
  EXPECT_EQ(json["moves"][0], (nlohmann::json{{"move", "a2a3"}, {"nodes", 380}}));
}

TEST(PerftVerb, ItsUsageLineNamesDepthAndFen) {
  EXPECT_TRUE(Sandbox().run({"perft", "--help"}).out.starts_with("usage: tandem perft <depth> [fen] [flags]\n"));
}

TEST(PerftVerb, RefusesWhatItCannotCount) {
  const Sandbox box;
  const auto refused = [&](const std::vector<std::string>& words) {
    const ProgramResult result = box.run(words);
    EXPECT_EQ(result.code, 2);
    EXPECT_EQ(result.out, "");
    return result.err;
  };
  EXPECT_TRUE(refused({"perft"}).starts_with("error: how deep?\n"));
  for (const char* depth : {"x", "65", "5.0", "99999999999"})
    EXPECT_NE(refused({"perft", depth}).find("is no depth\n"), std::string::npos) << depth;
  EXPECT_TRUE(refused({"perft", "1", "7k/8/8/8/8/8/8/K6R w - - 0 1"})
                  .starts_with("error: this position is impossible: \"7k/8/8/8/8/8/8/K6R w - - 0 1\"\n"
                               "  why    White is to move, but Black's king is in check\n"));
  EXPECT_TRUE(refused({"perft", "1", "e4"}).starts_with("error: this is no FEN: \"e4\"\n"));
  EXPECT_NE(refused({"perft", "1", "--device", "cuda:0"}).find("error: devices \"cuda:0\": "), std::string::npos);
  EXPECT_NE(refused({"perft", "1", "--device", "cpu:2"}).find("not one device"), std::string::npos);
  EXPECT_NE(refused({"perft", "1", "--device", "tpu"}).find("devices \"tpu\""), std::string::npos);
}

}  // namespace
}  // namespace tandem
