// What a person meets first: help, version, completion, speed of the program itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>

#include "command/run_program.h"

namespace tandem {
namespace {

const std::vector<std::vector<std::string>> kCommands = {{},
                                                         {"train"},
                                                         {"resume"},
                                                         {"runs"},
                                                         {"runs", "list"},
                                                         {"runs", "show"},
                                                         {"runs", "compare"},
                                                         {"runs", "best"},
                                                         {"runs", "rebuild"},
                                                         {"digest"},
                                                         {"export"},
                                                         {"report"},
                                                         {"explain"},
                                                         {"doctor"},
                                                         {"gpus"},
                                                         {"monitor"},
                                                         {"guard"},
                                                         {"guard", "set"},
                                                         {"config"},
                                                         {"config", "show"},
                                                         {"recipes"},
                                                         {"recipes", "list"},
                                                         {"completion"},
                                                         {"version"}};

std::string shell_output(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  std::string text;
  char buffer[4096];
  while (pipe && std::fgets(buffer, sizeof buffer, pipe)) text += buffer;
  if (pipe) pclose(pipe);
  return text;
}

TEST(Help, OfEveryCommandOpensWithCommandsToCopyAndEndsWithExitCodes) {
  const Sandbox box;
  for (auto words : kCommands) {
    const std::string start = words.empty() ? "usage: tandem " : "usage: tandem " + words[0];
    words.push_back("--help");
    const ProgramResult result = box.run(words);
    EXPECT_EQ(result.code, 0);
    EXPECT_TRUE(result.out.starts_with(start)) << result.out;
    EXPECT_LT(result.out.find('\n'), 100u) << result.out;
    const size_t second_line = result.out.find('\n') + 1;
    EXPECT_EQ(result.out.compare(second_line, 9, "  tandem "), 0) << result.out;
    EXPECT_NE(result.out.find("75 stopped and resumable"), std::string::npos);
    EXPECT_EQ(result.err, "");
  }
}

TEST(Help, ShowsTheValuesFlagsHaveNow) {
  Sandbox box;
  EXPECT_NE(box.run({"train", "--help"}).out.find("stop after n updates  [3000, default of tiny]"), std::string::npos);
  box.write("tandem.toml", "steps = 77\n");
  EXPECT_NE(box.run({"train", "tiny", "--help"}).out.find("stop after n updates  [77, tandem.toml:1]"),
            std::string::npos);
  EXPECT_NE(box.run({"train", "tiny", "--help"}).out.find("dropout = 0.1"), std::string::npos);
  EXPECT_EQ(box.run({"train", "tinny", "--stpes", "--help"}).code, 0);  // help for a line that is wrong
}

TEST(Help, WithoutAnyWordIsTheOverview) {
  const Sandbox box;
  const ProgramResult result = box.run({});
  EXPECT_EQ(result.code, 0);
  EXPECT_NE(result.out.find("commands:"), std::string::npos);
}

TEST(Program, AnswersInMillisecondsAndLinksNoTorch) {
  const Sandbox box;
  double fastest = 1;
  for (int i = 0; i < 5; ++i) fastest = std::min(fastest, box.run({"train", "tiny", "--help"}).cpu_seconds);
  EXPECT_LT(fastest, 0.05);
  const std::string libraries = shell_output("ldd " TANDEM_PROGRAM);
  EXPECT_NE(libraries.find("libc.so"), std::string::npos);
  EXPECT_EQ(libraries.find("torch"), std::string::npos) << libraries;
}

TEST(Program, EveryReadingCommandAnswersInJsonWithASchema) {
  const Sandbox box;
  ASSERT_EQ(box.run({"train", "tiny", "-q"}).code, 0);
  ASSERT_EQ(box.run({"train", "tiny", "-q", "--seed", "3"}).code, 0);
  const auto listed = nlohmann::json::parse(box.run({"runs", "--json"}).out);
  ASSERT_EQ(listed["runs"].size(), 2u);
  const std::string a = listed["runs"][0]["id"], b = listed["runs"][1]["id"];
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{{"version"},
                                                                                     {"monitor"},
                                                                                     {"recipes"},
                                                                                     {"runs", "list"},
                                                                                     {"runs", "show", "last"},
                                                                                     {"runs", "compare", a, b},
                                                                                     {"runs", "rebuild"},
                                                                                     {"report", "last"},
                                                                                     {"config", "show", "tiny"}}) {
    auto with_json = words;
    with_json.push_back("--json");
    const ProgramResult result = box.run(with_json);
    EXPECT_EQ(result.code, 0) << words.back() << result.err;
    EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 1) << result.out;
    EXPECT_EQ(nlohmann::json::parse(result.out)["schema"], 1);
  }
  EXPECT_EQ(box.run({"runs", "list", "-q"}).out, a + "\n" + b + "\n");
  EXPECT_NE(box.run({"runs", "compare", a, b}).out.find("seed"), std::string::npos);
}

TEST(Completion, OfBashKnowsCommandsFlagsRecipesAndRuns) {
  Sandbox box;
  ASSERT_EQ(box.run({"train", "tiny", "-q"}).code, 0);
  const std::string id = nlohmann::json::parse(box.run({"runs", "--json"}).out)["runs"][0]["id"];
  box.write("tandem.bash", box.run({"completion", "bash"}).out);
  const auto complete = [&](const std::string& words, int at) {
    return " " +
           shell_output("cd " + box.dir().string() +
                        " && PATH=$PWD/bin:$PATH bash -c 'source ./tandem.bash && COMP_WORDS=(" + words +
                        ") COMP_CWORD=" + std::to_string(at) + " && _tandem && echo \"${COMPREPLY[@]}\"'") +
           " ";
  };
  EXPECT_EQ(complete("tandem re", 1), " resume report recipes\n ");
  EXPECT_NE(complete("tandem train --st", 2).find("--steps"), std::string::npos);
  EXPECT_NE(complete("tandem train ti", 2).find("tiny tiny-rl"), std::string::npos);
  EXPECT_EQ(complete("tandem runs be", 2), " best\n ");
  EXPECT_NE(complete("tandem resume \"\"", 2).find("last " + id), std::string::npos);
  EXPECT_NE(complete("tandem completion z", 2).find("zsh"), std::string::npos);
}

TEST(Completion, OfEveryShellHasEveryCommandAndFlag) {
  const Sandbox box;
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string script = box.run({"completion", shell}).out;
    for (const char* word : {"train", "rebuild", "completion", "loader-threads", "checkpoint-every", "runs-root"}) {
      EXPECT_NE(script.find(word), std::string::npos) << shell << " " << word;
    }
  }
  EXPECT_EQ(box.run({"completion", "tcsh"}).code, 2);
}

TEST(Docs, NameEveryCommandAndFlag) {
  const Sandbox box;
  std::ifstream file(TANDEM_COMMANDS_MD);
  const std::string docs((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  ASSERT_FALSE(docs.empty());
  const std::string script = box.run({"completion", "fish"}).out;
  const std::regex pattern(" -l ([a-z-]+)| -a ([a-z]+) -d");
  for (auto at = std::sregex_iterator(script.begin(), script.end(), pattern); at != std::sregex_iterator(); ++at) {
    const std::string word = (*at)[1].matched ? "--" + (*at)[1].str() : (*at)[2].str();
    EXPECT_NE(docs.find(word), std::string::npos) << word;
  }
}

}  // namespace
}  // namespace tandem
