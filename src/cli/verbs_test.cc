// What a recipe's entry brings to the command line: verbs with flags, flags for settings, lines for the help.
#include <gtest/gtest.h>

#include <fstream>

#include "base/errors.h"
#include "base/temp_dir.h"
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

TEST(Verbs, OfTheProgramItselfNeedNoRecipe) {
  CliContext context = program_with_a_verb();
  context.verbs = {
      {.name = "game",
       .summary = "plays",
       .run = [](const Command& command) { return static_cast<int>(command.arguments.subjects.size()) + 40; },
       .subject = "words",
       .most_subjects = 3}};
  char own[] = "own", game[] = "game", chess[] = "chess", run[] = "run-1";
  char* words[] = {own, game, chess, run, chess, chess};
  EXPECT_EQ(cli_main(4, words, context), 42);
  testing::internal::CaptureStderr();
  EXPECT_EQ(cli_main(6, words, context), 2);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("`own game` was given too many words"), std::string::npos) << said;
  EXPECT_NE(said.find("it takes at most 3"), std::string::npos) << said;
  context.verbs.front().name = "say";
  Arguments arguments;
  EXPECT_THROW(make_app(context, arguments), std::logic_error) << "a recipe has it too";
}

// A second recipe with `say`, which has one flag more and ends with 99.
CliContext program_with_two() {
  CliContext context = program_with_a_verb();
  RecipeInfo other = context.recipes.front();
  other.name = "other";
  other.verbs.front().run = [](const Command&) { return 99; };
  other.verbs.front().flags.push_back({"--softly", "", "so that nobody hears it", VerbFlag::Kind::kSwitch});
  context.recipes.push_back(other);
  return context;
}

int run_line(const CliContext& context, std::vector<std::string> words) {
  words.insert(words.begin(), "own");
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  return cli_main(static_cast<int>(words.size()), pointers.data(), context);
}

struct Runs {
  TempDir dir;
  void add(const std::string& id, const std::string& file, const std::string& text) const {
    std::filesystem::create_directories(dir / id);
    std::ofstream(dir / id / file) << text;
  }
  std::string flag() const { return "--runs-root=" + dir.path().string(); }
};

TEST(Verbs, OfSeveralRecipesTheRunsOwnIsTaken) {
  const CliContext context = program_with_two();
  const Runs runs;
  EXPECT_EQ(run_line(context, {"say", runs.flag()}), 2) << "there is no run";
  runs.add("echo-1", "run.json", R"({"id":"echo-1","recipe":"echo","started":"2026-01-01T00:00:00Z"})");
  runs.add("other-1", "run.json", R"({"id":"other-1","recipe":"other","started":"2026-01-02T00:00:00Z"})");
  runs.add("other-2", "recipe.toml", "recipe = \"other\"\n");
  runs.add("third-1", "recipe.toml", "recipe = \"third\"\n");
  EXPECT_EQ(run_line(context, {"say", "echo-1", "--times=3", runs.flag()}), 3);
  EXPECT_EQ(run_line(context, {"say", "other-1", "--softly", runs.flag()}), 99);
  EXPECT_EQ(run_line(context, {"say", "other-2", runs.flag()}), 99) << "recipe.toml names it too";
  EXPECT_EQ(run_line(context, {"say", runs.flag()}), 99) << "none named: the newest";
  EXPECT_EQ(run_line(context, {"say", "echo-1", "--softly", runs.flag()}), 2) << "a flag of the other recipe's";
  EXPECT_EQ(run_line(context, {"say", "third-1", runs.flag()}), 2) << "of neither";
}

TEST(Verbs, OfASetOfJobsTheRecipeOfItsJobsDecides) {
  const Runs runs;
  runs.add("set-1", "run.json", R"({"id":"set-1","recipe":"set"})");
  runs.add("set-1", "agents.json", R"({"schema":1,"agents":{"a":{"runs":["agents/a"],"best":"agents/a"}}})");
  runs.add("set-1/agents/a", "recipe.toml", "recipe = \"other\"\n");
  EXPECT_EQ(run_line(program_with_two(), {"say", "set-1", runs.flag()}), 99);
}

TEST(Verbs, WithoutARunTheOnlyOneThatNeedsNoneIsTaken) {
  CliContext context = program_with_two();
  context.recipes.back().verbs.front().subject = "";
  EXPECT_EQ(run_line(context, {"say", Runs().flag()}), 99);
}

// What make_app() says of a program whose author made a mistake.
std::string fault_of(const CliContext& context) {
  Arguments arguments;
  try {
    make_app(context, arguments);
  } catch (const std::logic_error& error) {
    return error.what();
  }
  return "";
}

TEST(Verbs, NamesThatAreTakenAreAFaultOfTheProgram) {
  EXPECT_EQ(fault_of(program_with_two()), "");
  for (const char* name : {"plan", "train", "help", "describe"}) {
    CliContext context = program_with_a_verb();
    context.recipes.front().verbs.front().name = name;
    EXPECT_EQ(fault_of(context), "the verb `" + std::string(name) +
                                     "` of recipe echo is a command of every program: give it another name");
  }
  for (const char* flag : {"--json", "-q,--quite", "--help", "-x"}) {
    CliContext context = program_with_a_verb();
    context.recipes.front().verbs.front().flags.push_back({flag, "", "taken", VerbFlag::Kind::kSwitch});
    EXPECT_NE(fault_of(context), "") << flag;
  }
  CliContext context = program_with_two();
  context.recipes.back().verbs.front().flags.front().kind = VerbFlag::Kind::kText;
  EXPECT_NE(fault_of(context).find("-t of the verb `say` of recipe other"), std::string::npos) << fault_of(context);
}

TEST(Verbs, AFlagForASettingStandsOnceWithAllItsNames) {
  CliContext context = program_with_two();
  context.recipes.back().flags = {{"--volume,--loudness", "loudness", "x", "the same", SettingFlag::On::kPlanToo}};
  EXPECT_EQ(fault_of(context), "");
  const std::vector<SettingFlag> flags = setting_flags(context.recipes);
  ASSERT_GE(flags.size(), 2u);
  EXPECT_EQ(flags[flags.size() - 2].names, "--loudness,--volume");
  EXPECT_EQ(flags[flags.size() - 2].on, SettingFlag::On::kPlanToo);
  EXPECT_EQ(flags.back().names, "--exact");
  context.recipes.back().flags = {{"--loudness", "noise", "x", "something else"}};
  EXPECT_EQ(
      fault_of(context),
      "the flag --loudness sets loudness for recipe echo, but noise for recipe other: give one of them another name");
  context.recipes.back().flags = {{"--rate,--lr", "rate", "x", "something else"}};
  EXPECT_NE(fault_of(context).find("for every recipe, but rate for recipe other"), std::string::npos);
  for (const char* flag : {"--json", "--run-dir", "--gpus", "--set", "--quick"}) {
    context.recipes.back().flags = {{flag, "rate", "x", "something else"}};
    EXPECT_EQ(fault_of(context), "the flag " + std::string(flag) + " of recipe other is a flag of `" + context.program +
                                     " train` already: give it another name");
  }
}

}  // namespace
}  // namespace tandem
