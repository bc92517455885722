// What a recipe's entry brings to the command line: verbs with flags, flags for settings, lines for the help.
#include <gtest/gtest.h>

#include "base/errors.h"
#include "cli/app.h"
#include "cli/cli_main.h"
#include "cli/parse_arguments.h"
#include "command/command.h"

namespace tandem {
namespace {

struct EchoSettings : RecipeSettings {
  double loudness = 1;
  void describe(Describer& d) override {
    RecipeSettings::describe(d);
    d.key("loudness", loudness, Range::above(0), "of what it says");
  }
};

CliContext program_with_a_verb() {
  RecipeInfo echo{"echo", "says what it hears", [] { return std::make_unique<EchoSettings>(); }};
  echo.flags = {{"--loudness", "loudness", "x", "of what it says"}};
  echo.examples = {{"train echo --loudness 2", "twice as loud"}};
  echo.verbs = {{.name = "say",
                 .summary = "says a word some times",
                 .run =
                     [](const Command& command) {
                       return static_cast<int>(command.arguments.whole("times", 1)) +
                              (command.arguments.has("loud") ? 10 : 0);
                     },
                 .flags = {{"-t,--times", "n", "how often [1]", VerbFlag::Kind::kWhole},
                           {"--loud", "", "so that all hear it", VerbFlag::Kind::kSwitch},
                           {"--to", "name", "who is meant"}}}};
  CliContext context;
  context.program = "own";
  context.recipes = {echo};
  return context;
}

Arguments parse(std::vector<const char*> words) {
  words.insert(words.begin(), "own");
  return parse_arguments(static_cast<int>(words.size()), words.data(), program_with_a_verb());
}

TEST(Verbs, FlagsAreFoundByTheirFirstLongName) {
  const Arguments given = parse({"say", "last", "-t", "3", "--loud", "--to", "me"});
  EXPECT_EQ(given.command, std::vector<std::string>{"say"});
  EXPECT_EQ(given.subjects, std::vector<std::string>{"last"});
  EXPECT_EQ(given.whole("times", 1), 3);
  EXPECT_TRUE(given.has("loud"));
  EXPECT_EQ(given.text("to"), "me");
  const Arguments none = parse({"say"});
  EXPECT_EQ(none.whole("times", 1), 1);
  EXPECT_FALSE(none.has("loud"));
  EXPECT_EQ(none.text("to", "all"), "all");
}

TEST(Verbs, WhatIsNoNumberOrNoFlagIsRefused) {
  EXPECT_THROW(parse({"say", "--times", "often"}), ConfigError);
  EXPECT_THROW(parse({"say", "--loudness", "2"}), ConfigError) << "a flag of train, not of the verb";
}

TEST(Verbs, OfOtherRecipesAreNotThere) {
  for (const char* word : {"eval", "act"}) EXPECT_THROW(parse({word, "last"}), ConfigError) << word;
  EXPECT_THROW(parse({"train", "echo", "--from", "last"}), ConfigError) << "no recipe of the program goes on so";
}

TEST(Verbs, AreRunByTheProgramAndStandInItsHelp) {
  CliContext context = program_with_a_verb();
  char own[] = "own", say[] = "say", times[] = "--times=4", loud[] = "--loud";
  char* words[] = {own, say, times, loud};
  EXPECT_EQ(cli_main(4, words, context), 14);
  Arguments arguments;
  const auto root = make_app(context, arguments);
  const CLI::App* verb = find_command(*root, {"say"});
  EXPECT_EQ(verb->get_description(), "says a word some times");
  EXPECT_NE(verb->get_option_no_throw("--times"), nullptr);
  const CLI::App* train = find_command(*root, {"train"});
  EXPECT_NE(train->get_option_no_throw("--loudness"), nullptr);
  EXPECT_NE(train->get_footer().find("own train echo --loudness 2"), std::string::npos);
  EXPECT_EQ(find_command(*root, {"plan"})->get_option_no_throw("--loudness"), nullptr);
}

TEST(Verbs, OfTwoRecipesTheFirstOnesIsTaken) {
  CliContext context = program_with_a_verb();
  RecipeInfo other = context.recipes.front();
  other.name = "other";
  other.verbs.front().run = [](const Command&) { return 99; };
  context.recipes.push_back(other);
  char own[] = "own", say[] = "say";
  char* words[] = {own, say};
  EXPECT_EQ(cli_main(2, words, context), 1);
}

}  // namespace
}  // namespace tandem
