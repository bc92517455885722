#include "config/resolver.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "config/members.h"

namespace tandem {
namespace {

struct SampleSettings : RecipeSettings {
  std::vector<int64_t> layers = {64, 32};
  std::string title = "plain";
  SampleSettings() {
    shards = 24;
    batch_size = 192;
    steps = 200;
  }
  void describe(Describer& d) override {
    RecipeSettings::describe(d);
    d.key("layers", layers, Range::at_least(1), "width of each layer");
    d.key("title", title, "any text", Role::kRunning);
  }
};

struct Fixture {
  SampleSettings settings;
  Resolver resolver{settings};
};

// The whole error as the user sees it.
template <typename F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const ConfigError& error) {
    return error.render();
  }
  return "no error";
}

std::string toml_error(const std::string& text) {
  Fixture f;
  return error_of([&] { f.resolver.apply_toml(text, "my.toml"); });
}

std::string set_error(const std::string& key, const std::string& value) {
  Fixture f;
  return error_of([&] { f.resolver.set(key, value, "--set"); });
}

TEST(Resolver, TablesAndDottedKeysMeanTheSame) {
  Fixture a, b;
  a.resolver.apply_toml("optimizer.learning_rate = 0.5\noptimizer.kind = \"sgd\"\n", "a.toml");
  b.resolver.apply_toml("[optimizer]\nkind = \"sgd\"\nlearning_rate = 0.5\n", "b.toml");
  EXPECT_EQ(a.settings.optimizer.learning_rate, 0.5);
  EXPECT_EQ(a.resolver.to_json(), b.resolver.to_json());
  EXPECT_EQ(b.resolver.source("optimizer.learning_rate"), "b.toml:3");
}

TEST(Resolver, AnUnknownKeyIsNamedWithItsLineAndTheNearestKey) {
  EXPECT_EQ(toml_error("seed = 1\n\noptimizer.learning_rat = 0.1\n"),
            "error: my.toml:3: unknown key `optimizer.learning_rat`\n"
            "  why    a misspelt key would be ignored in silence, so unknown ones are errors\n"
            "  do     did you mean `optimizer.learning_rate`?\n");
  EXPECT_NE(toml_error("learning_rate = 1\n").find("did you mean `optimizer.learning_rate`?"), std::string::npos);
  EXPECT_NE(toml_error("bacth_size = 1\n").find("did you mean `batch_size`?"), std::string::npos);
  EXPECT_NE(toml_error("zebra = 1\n").find("see the recipe's keys"), std::string::npos);
  EXPECT_NE(toml_error("\"optimizer.kind\" = \"sgd\"\n").find("unknown key"), std::string::npos);
}

TEST(Resolver, AWrongTypeTellsExpectedAndFound) {
  EXPECT_EQ(toml_error("batch_size = \"many\"\n"),
            "error: my.toml:1: `batch_size` must be a whole number, found the text \"many\"\n"
            "  why    `batch_size` is: global batch size, samples of one update; per device if shards is \"devices\"\n"
            "  do     write it as in `batch_size = 192`\n");
  EXPECT_NE(toml_error("steps = 1.5\n").find("found the number 1.5"), std::string::npos);
  EXPECT_NE(toml_error("sync_bn = 1\n").find("must be a true or false, found the whole number 1"), std::string::npos);
  EXPECT_NE(toml_error("seed = 2020-01-01\n").find("found a date or time"), std::string::npos);
  EXPECT_NE(toml_error("layers = [1, \"x\"]\n").find("a list that holds more than whole numbers"), std::string::npos);
  EXPECT_NE(toml_error("seed = {}\n").find("found an empty table"), std::string::npos);
  EXPECT_NE(set_error("steps", "1O0").find("--set: `steps` must be a whole number, found \"1O0\""), std::string::npos);
  EXPECT_NE(set_error("steps", "").find("must be a whole number"), std::string::npos);
  EXPECT_NE(set_error("shards", "device").find("whole number or \"devices\""), std::string::npos);
}

TEST(Resolver, ANumberOutOfItsRangeIsRefused) {
  EXPECT_EQ(toml_error("optimizer.learning_rate = 0\n"),
            "error: my.toml:1: `optimizer.learning_rate` is 0; it must be above 0\n"
            "  why    `optimizer.learning_rate` is: learning rate\n"
            "  do     choose a value that is above 0\n");
  EXPECT_NE(set_error("optimizer.beta1", "1").find("at least 0 and below 1"), std::string::npos);
  EXPECT_NE(set_error("checkpoint.keep", "1").find("at least 2"), std::string::npos);
  EXPECT_NE(set_error("layers", "3,0").find("`layers` is 0"), std::string::npos);
  EXPECT_NE(set_error("optimizer.learning_rate", "nan").find("must be"), std::string::npos);
  EXPECT_NE(toml_error("clip_norm = inf\n").find("must be"), std::string::npos);
  EXPECT_NE(set_error("shards", "65536").find("1 to 65535"), std::string::npos);
}

TEST(Resolver, AWordThatIsNoChoiceGetsTheNearestOne) {
  EXPECT_EQ(toml_error("precision = \"bf61\"\n"),
            "error: my.toml:1: `precision` is \"bf61\"; it must be one of fp32, tf32, bf16, fp16\n"
            "  why    `precision` is: precision of forward and backward (mixed precision: bf16, fp16)\n"
            "  do     did you mean `bf16`?\n");
  EXPECT_NE(set_error("max_time", "soon").find("a time such as 90s, 10m or 2h"), std::string::npos);
  EXPECT_NE(set_error("checkpoint.every", "0s").find("it is no interval"), std::string::npos);
}

TEST(Resolver, BrokenTomlIsNamedByLine) {
  EXPECT_NE(toml_error("seed = 1\nsteps = = 3\n").find("error: my.toml:2: this is no TOML"), std::string::npos);
  EXPECT_NE(toml_error("seed = 1\nseed = 2\n").find("my.toml:2"), std::string::npos);
  EXPECT_NE(toml_error(std::string(2'000'000, '#')).find("too many"), std::string::npos);
}

TEST(Resolver, BytesThatAreNoTextAreRefused) {
  EXPECT_NE(toml_error(std::string("seed = 1\n[\0\4", 12)).find("my.toml:2: this line holds control characters"),
            std::string::npos);
  EXPECT_NE(toml_error("title = \"\xff\"\n").find("my.toml:1: this line holds bytes that are no UTF-8"),
            std::string::npos);
  EXPECT_EQ(toml_error("seed = 1\r\nsteps\t= 2 # \xc3\xa9\r\n"), "no error");
}

TEST(Resolver, LettersOutsideOfAsciiMustStandInQuotes) {
  EXPECT_NE(toml_error("steps = \xd2\x96\n").find("my.toml:1: this is no TOML: a character outside of ASCII"),
            std::string::npos);
  EXPECT_EQ(toml_error("\xef\xbb\xbftitle = \"\xd2\x96\" # \xd2\x96\n"), "no error");
}

TEST(Resolver, WhatBreaksAnAssertOfTheParserIsRefused) {
  EXPECT_NE(toml_error("[|").find("my.toml: this is no TOML"), std::string::npos);
}

TEST(Resolver, BracketsAndQuotesThatDoNotMatchAreRefused) {
  EXPECT_NE(toml_error("seed = 1\nlayers = [}\n").find("my.toml:2: this is no TOML: a '}' that closes nothing"),
            std::string::npos);
  EXPECT_NE(toml_error("layers = ]\n").find("a ']' that closes nothing"), std::string::npos);
  EXPECT_NE(toml_error("devices = \"C:\\\xD0\x8A\"\n").find("my.toml:1: this is no TOML: a backslash before"),
            std::string::npos);
  EXPECT_NE(toml_error("title = \"a\nseed = 1\n").find("my.toml:1: this is no TOML: a text without"),
            std::string::npos);
  EXPECT_NE(toml_error("layers = 0x1'a'\n").find("my.toml:1: this is no TOML: a quote in the midst of a word"),
            std::string::npos);
  EXPECT_EQ(toml_error("optimizer.\"kind\" = 'sgd'\n[\"schedule\"]\n"), "no error");
  EXPECT_EQ(toml_error("title = \"[}\\\"]\" # }\n"), "no error");
  EXPECT_EQ(toml_error("title = '[}\\'\nlayers = [1, # }\n 2]\n"), "no error");
  EXPECT_EQ(toml_error("title = \"\"\"}\"\n}\"\"\"\"\"\noptimizer = { kind = 'sgd' }\n"), "no error");
}

TEST(Resolver, KeysNestedHalfAMillionDeepAreRefusedNotCrashed) {
  std::string deep = "a";
  for (int i = 0; i < 400'000; ++i) deep += ".a";
  EXPECT_NE(toml_error(deep + " = 1\n").find("more than 200 dots"), std::string::npos);
  EXPECT_NE(toml_error("[" + deep + "]\n").find("more than 200 dots"), std::string::npos);
  EXPECT_NE(toml_error("x = " + std::string(100'000, '[')).find("nested too deep"), std::string::npos);
}

TEST(Resolver, AFileWithAnErrorChangesNothing) {
  Fixture f;
  EXPECT_NE(error_of([&] { f.resolver.apply_toml("seed = 9\nsteps = -1\n", "x.toml"); }), "no error");
  EXPECT_EQ(f.settings.seed, 1);
  EXPECT_EQ(f.resolver.source("seed"), "default");
}

TEST(Resolver, LaterSourcesWinAndAreRemembered) {
  Fixture f;
  f.resolver.apply_defaults_file(
      "seed = 2\nsteps = 2\nruns_root = \"x\"\n[recipes.sample]\nsteps = 3\n[recipes.other]\nzebra = 1\n",
      "tandem.toml", "sample");
  EXPECT_EQ(f.settings.steps, 3);
  f.resolver.apply_toml("recipe = \"sample\"\nbatch_size = 48\nsteps = 4\n", "my.toml");
  f.resolver.apply_environment([](const std::string& name) -> std::optional<std::string> {
    if (name == "TANDEM_STEPS") return "5";
    if (name == "TANDEM_OPTIMIZER_LEARNING_RATE") return "0.25";
    return std::nullopt;
  });
  EXPECT_EQ(f.settings.steps, 5);
  f.resolver.set("steps", "6", "--steps");
  EXPECT_EQ(f.settings.steps, 6);
  EXPECT_EQ(f.settings.optimizer.learning_rate, 0.25);
  EXPECT_EQ(f.resolver.source("seed"), "tandem.toml:1");
  EXPECT_EQ(f.resolver.source("batch_size"), "my.toml:2");
  EXPECT_EQ(f.resolver.source("optimizer.learning_rate"), "TANDEM_OPTIMIZER_LEARNING_RATE");
  EXPECT_EQ(f.resolver.source("steps"), "--steps");
}

TEST(Resolver, TheResolvedTextReadsBackToTheSameValuesAndSources) {
  Fixture a;
  a.resolver.set("optimizer.learning_rate", "0.1", "--lr");
  a.resolver.set("optimizer.epsilon", "1e-300", "--set");
  a.resolver.set("layers", "[7, 8]", "--set");
  a.resolver.set("title", "a \"b\" \\ # c \x7f \xc3\xa9", "--set");
  a.resolver.set("max_time", "90s", "TANDEM_MAX_TIME");
  a.resolver.set("clip_norm", "3", "--set");
  const std::string text = a.resolver.to_toml("sample");
  Fixture b;
  b.resolver.apply_toml(text, "recipe.toml");
  EXPECT_EQ(a.resolver.to_json(), b.resolver.to_json()) << text;
  EXPECT_EQ(b.resolver.to_toml("sample"), text);
  EXPECT_EQ(b.resolver.source("optimizer.learning_rate"), "--lr");
  EXPECT_EQ(b.resolver.source("title"), "--set");
  EXPECT_EQ(b.resolver.source("seed"), "default");
  EXPECT_EQ(recipe_named_in(text, "recipe.toml"), "sample");
}

TEST(Resolver, EveryDoubleSurvivesTheText) {
  for (const double value : {0.1, 1e-300, 3.0, 1.0 / 3.0, 5e-324, 1.7976931348623157e308, 123456789012345680.0}) {
    Fixture a, b;
    a.settings.optimizer.learning_rate = value;
    b.resolver.apply_toml(a.resolver.to_toml("sample"), "recipe.toml");
    EXPECT_EQ(b.settings.optimizer.learning_rate, value);
  }
}

TEST(Resolver, TextsAreTakenAsTyped) {
  Fixture f;
  f.resolver.set("precision", "\"bf16\"", "--set");
  EXPECT_EQ(f.settings.precision, "bf16");
  f.resolver.set("steps", "1_000", "--set");
  EXPECT_EQ(f.settings.steps, 1000);
  f.resolver.set("layers", "", "--set");
  EXPECT_TRUE(f.settings.layers.empty());
  EXPECT_NE(error_of([&] { f.resolver.set("title", "\xff", "--set"); }).find("no UTF-8"), std::string::npos);
  f.resolver.set("shards", "devices", "--set");
  EXPECT_TRUE(f.settings.shards_from_devices);
  f.resolver.set("shards", "12", "--set");
  EXPECT_FALSE(f.settings.shards_from_devices);
  EXPECT_EQ(f.settings.shards, 12);
}

TEST(Resolver, AHostileKeyCannotSteerTheTerminal) {
  EXPECT_EQ(toml_error("\"\\u001b[2J\" = 1\n").find('\x1b'), std::string::npos);
  EXPECT_EQ(toml_error("precision = \"\\u009b31m\"\n").find("\xc2\x9b"), std::string::npos);
}

TEST(Resolver, OnlyWhatDecidesTheResultGoesIntoACheckpoint) {
  Fixture f;
  const auto values = f.resolver.result_values();
  EXPECT_TRUE(values.contains("seed") && values.contains("shards") && values.contains("layers"));
  for (const char* key :
       {"steps", "epochs", "max_time", "devices", "loader.threads", "checkpoint.every", "title", "exact"}) {
    EXPECT_FALSE(values.contains(key)) << key;
  }
}

TEST(CheckCompatible, AnotherShardCountIsToldFirst) {
  Fixture then, now;
  now.resolver.set("shards", "8", "--set");
  now.resolver.set("seed", "2", "--set");
  EXPECT_EQ(
      error_of([&] { check_compatible(then.resolver.result_values(), now.resolver.result_values(), "tiny-0412"); }),
      "error: cannot resume tiny-0412: the checkpoint has 24 shards, the recipe asks for 8\n"
      "  why    the shard count fixes the random streams; 8 would be another experiment, not a continuation\n"
      "  do     set `shards = 24`, or begin anew with `tandem train`\n");
}

TEST(CheckCompatible, EveryKeyThatDecidesTheWeightsIsGuardedAndNoOther) {
  Fixture base;
  const auto then = base.resolver.result_values();
  for (const KeyInfo& key : base.resolver.keys()) {
    auto now = then;
    if (key.role == Role::kRunning) continue;
    now[key.name] = "changed";
    const std::string error = error_of([&] { check_compatible(then, now, "x"); });
    EXPECT_NE(error.find(key.name == "shards" ? "shards" : "`" + key.name + "`"), std::string::npos) << error;
  }
  Fixture other;
  other.resolver.set("steps", "999", "--steps");
  other.resolver.set("devices", "cpu:3", "--devices");
  EXPECT_NO_THROW(check_compatible(then, other.resolver.result_values(), "x"));
  EXPECT_NO_THROW(check_compatible(nlohmann::json::parse(then.dump()), then, "x"));
}

TEST(CheckCompatible, KeysOfAnotherRecipeAreNamed) {
  Fixture f;
  auto then = f.resolver.result_values();
  then["games"] = 3;
  EXPECT_NE(error_of([&] { check_compatible(then, f.resolver.result_values(), "x"); }).find("`games = 3`"),
            std::string::npos);
  then = f.resolver.result_values();
  then.erase("layers");
  EXPECT_NE(error_of([&] { check_compatible(then, f.resolver.result_values(), "x"); }).find("`layers` is [64,32]"),
            std::string::npos);
}

TEST(Freeze, ShardsFromDevicesBecomeNumbersAndTheBatchIsPerDevice) {
  Fixture f;
  f.resolver.set("shards", "devices", "--set");
  f.resolver.set("batch_size", "32", "--batch-size");
  freeze(f.resolver, f.settings, 3);
  EXPECT_EQ(f.settings.shards, 3);
  EXPECT_EQ(f.settings.batch_size, 96);
  EXPECT_EQ(f.settings.micro_batch_size(), 32);
  EXPECT_EQ(f.resolver.source("shards"), "3 devices at the start, 32 samples each");
  Fixture again;
  again.resolver.apply_toml(f.resolver.to_toml("sample"), "recipe.toml");
  freeze(again.resolver, again.settings, 1);  // resumed on one device
  EXPECT_EQ(again.settings.shards, 3);
  EXPECT_EQ(again.settings.batch_size, 96);
}

TEST(Freeze, TheLengthOfACosineIsFixedAtTheStart) {
  Fixture f;
  f.resolver.set("schedule.kind", "cosine", "--set");
  f.resolver.set("steps", "500", "--steps");
  freeze(f.resolver, f.settings, 1);
  EXPECT_EQ(f.settings.schedule.total_steps, 500);
  f.resolver.set("steps", "900", "--steps");  // a resume that goes on for longer keeps the curve
  freeze(f.resolver, f.settings, 1);
  EXPECT_EQ(f.settings.schedule.total_steps, 500);
}

TEST(Freeze, AGivenStopRuleReplacesTheRecipesOwn) {
  Fixture f;
  f.resolver.set("epochs", "3", "--epochs");
  freeze(f.resolver, f.settings, 1);
  EXPECT_EQ(f.settings.steps, 0);
  EXPECT_EQ(f.resolver.source("steps"), "off, because epochs was given");
  Fixture both;
  both.resolver.set("epochs", "3", "--epochs");
  both.resolver.set("steps", "7", "--steps");
  freeze(both.resolver, both.settings, 1);
  EXPECT_EQ(both.settings.steps, 7);
}

TEST(RecipeSettings, ABatchThatDoesNotDivideNamesTheNearestTwoThatDo) {
  Fixture f;
  f.settings.batch_size = 100;
  EXPECT_EQ(
      error_of([&] { f.settings.check(); }),
      "error: a batch of 100 does not divide by 24 shards\n"
      "  why    every shard runs the same fixed number of samples, so that the result never depends on the machines\n"
      "  do     set batch_size to 96 or 120\n");
  f.settings.batch_size = 5;
  EXPECT_NE(error_of([&] { f.settings.check(); }).find("set batch_size to 24 or 48"), std::string::npos);
  f.settings.batch_size = 120;
  f.settings.accumulation = 2;
  EXPECT_NE(error_of([&] { f.settings.check(); }).find("24 shards x 2 micro-batches"), std::string::npos);
}

struct TwinSettings : SampleSettings, HasMembers {
  std::vector<std::string> members() const override { return {"left", "right"}; }
  std::vector<std::string> shared_keys() const override { return {"devices"}; }
};

TEST(Members, AKeyForOneOfThemGoesOverTheCommonOneAndIsReadBack) {
  TwinSettings twins;
  Resolver whole(twins);
  whole.apply_toml("seed = 5\n[left]\nseed = 6\noptimizer.learning_rate = 0.5\n", "twins.toml");
  whole.set("right.steps", "9", "--set");
  EXPECT_EQ(twins.seed, 5);
  TwinSettings copy;
  Resolver again(copy);
  again.apply_toml(whole.to_toml("twins"), "recipe.toml");
  for (const Resolver* one : {&whole, &again}) {
    SampleSettings left, right;
    Resolver left_one(left), right_one(right);
    left_one.take(*one, "left");
    right_one.take(*one, "right");
    EXPECT_EQ(left.seed, 6);
    EXPECT_EQ(left.optimizer.learning_rate, 0.5);
    EXPECT_EQ(left.steps, 200);
    EXPECT_EQ(left_one.source("seed"), "twins.toml:3");
    EXPECT_EQ(right.seed, 5);
    EXPECT_EQ(right.steps, 9);
    EXPECT_EQ(right_one.source("steps"), "--set");
  }
}

TEST(Members, OnlyWhatWasGivenNowIsTakenOnAResume) {
  TwinSettings twins;
  Resolver whole(twins);
  whole.apply_toml("seed = 5\nleft.title = \"old\"\n", "recipe.toml");
  whole.set("steps", "300", "--steps");
  whole.set("left.batch_size", "24", "--set");
  SampleSettings left;
  Resolver one(left);
  one.take(whole, "left", 2);
  EXPECT_EQ(left.seed, 1);
  EXPECT_EQ(left.title, "plain");
  EXPECT_EQ(left.steps, 300);
  EXPECT_EQ(left.batch_size, 24);
}

TEST(Members, UnknownAndSharedKeysAreRefused) {
  TwinSettings twins;
  Resolver whole(twins);
  EXPECT_NE(error_of([&] { whole.set("left.sede", "1", "--set"); }).find("did you mean `seed`?"), std::string::npos);
  EXPECT_NE(error_of([&] { whole.set("left.devices", "cpu:1", "--set"); }).find("belongs to the run as a whole"),
            std::string::npos);
  EXPECT_NE(error_of([&] { whole.set("middle.seed", "1", "--set"); }).find("unknown key"), std::string::npos);
}

}  // namespace
}  // namespace tandem
