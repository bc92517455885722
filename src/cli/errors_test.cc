// Bad input through the real program: the whole message and the exit code, word for word.
#include "base/errors.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "command/ranks.h"
#include "command/run_program.h"
#include "launch/rank_info.h"

namespace tandem {
namespace {

void expect_error(const Sandbox& box, const std::vector<std::string>& arguments, const std::string& message,
                  int code = 2) {
  const ProgramResult result = box.run(arguments);
  EXPECT_EQ(result.err, message);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.code, code);
}

TEST(Errors, AMisspeltCommandGetsTheNearestOne) {
  const Sandbox box;
  expect_error(box, {"trian", "tiny"},
               "error: `tandem` has no command \"trian\"\n"
               "  why    the commands are: train, resume, join, leave, runs, digest, export, report, explain, match, "
               "perft, play, data, eval, act, backtest, predict, plan, bench, monitor, guard, doctor, gpus, config, "
               "recipes, completion, version\n"
               "  do     did you mean `train`?\n");
  expect_error(box, {"runs", "lst"},
               "error: `tandem runs` has no command \"lst\"\n"
               "  why    the commands are: list, show, compare, best, rm, prune, rebuild\n"
               "  do     did you mean `list`?\n");
}

TEST(Errors, AMisspeltFlagGetsTheNearestOne) {
  const Sandbox box;
  expect_error(box, {"train", "tiny", "--stpes", "5"},
               "error: `tandem train` has no flag --stpes\n"
               "  why    an unknown flag is never ignored\n"
               "  do     did you mean `--steps`?\n");
  expect_error(box, {"train", "tiny", "--batch_sizes=5"},
               "error: `tandem train` has no flag --batch-sizes\n"
               "  why    an unknown flag is never ignored\n"
               "  do     did you mean `--batch-size`?\n");
}

TEST(Errors, AFlagWithoutItsValue) {
  const Sandbox box;
  expect_error(box, {"train", "tiny", "--steps"},
               "error: tandem train: --steps needs a value\n"
               "  why    the command line could not be understood\n"
               "  do     see `tandem train --help`\n");
}

TEST(Errors, NoSuchRecipe) {
  const Sandbox box;
  expect_error(box, {"train", "tinny"},
               "error: there is no recipe \"tinny\"\n"
               "  why    the recipes are: tiny, tiny-rl, web-agent, web-test, dqn, ppo, options, video\n"
               "  do     did you mean `tiny`?\n");
  expect_error(box, {"train"},
               "error: which recipe?\n"
               "  why    the recipes are: tiny, tiny-rl, web-agent, web-test, dqn, ppo, options, video\n"
               "  do     name one, as in `tandem train tiny`\n");
  expect_error(box, {"train", "none.toml"},
               "error: cannot read none.toml\n"
               "  why    No such file or directory\n"
               "  do     check the path and the rights to read it\n");
}

TEST(Errors, AFileThatNamesNoRecipe) {
  const Sandbox box;
  box.write("my.toml", "steps = 5\n");
  expect_error(box, {"train", "my.toml"},
               "error: my.toml does not say which recipe it is for\n"
               "  why    a recipe file changes settings of a recipe, which it names in its first line\n"
               "  do     write `recipe = \"tiny\"` at its top; `tandem recipes` lists the names\n");
}

TEST(Errors, UnknownKeyWrongTypeAndRangeNameFileAndLine) {
  const Sandbox box;
  box.write("a.toml", "recipe = \"tiny\"\n\n[optimizer]\nlerning_rate = 0.1\n");
  expect_error(box, {"train", "a.toml"},
               "error: a.toml:4: unknown key `optimizer.lerning_rate`\n"
               "  why    a misspelt key would be ignored in silence, so unknown ones are errors\n"
               "  do     did you mean `optimizer.learning_rate`?\n");
  box.write("b.toml", "recipe = \"tiny\"\nsteps = \"many\"\n");
  expect_error(box, {"train", "b.toml"},
               "error: b.toml:2: `steps` must be a whole number, found the text \"many\"\n"
               "  why    `steps` is: stop after this many steps, skipped ones included; 0: no such limit\n"
               "  do     write it as in `steps = 3000`\n");
  expect_error(box, {"train", "tiny", "--lr", "-1"},
               "error: --lr: `optimizer.learning_rate` is -1; it must be above 0\n"
               "  why    `optimizer.learning_rate` is: learning rate\n"
               "  do     choose a value that is above 0\n");
  expect_error(box, {"train", "tiny", "--set", "precision=fp61"},
               "error: --set: `precision` is \"fp61\"; it must be one of fp32, tf32, bf16, fp16\n"
               "  why    `precision` is: precision of forward and backward (mixed precision: bf16, fp16)\n"
               "  do     did you mean `fp16`?\n");
  expect_error(box, {"train", "tiny", "--set", "precision"},
               "error: --set precision: no key and value\n"
               "  why    --set takes one line of a recipe\n"
               "  do     write --set key=value, as in `--set optimizer.learning_rate=0.01`\n");
}

TEST(Errors, ABadVariableIsNamed) {
  Sandbox box;
  box.env["TANDEM_STEPS"] = "ten";
  expect_error(box, {"train", "tiny"},
               "error: TANDEM_STEPS: `steps` must be a whole number, found \"ten\"\n"
               "  why    `steps` is: stop after this many steps, skipped ones included; 0: no such limit\n"
               "  do     write it as in `steps = 3000`\n");
}

TEST(Errors, AVariableThatNobodyReadsIsNamed) {
  Sandbox box;
  box.env["TANDEM_STPES"] = "5";
  box.env["TANDEM_SOMEBODY_ELSES"] = "5";
  EXPECT_EQ(box.run({"config", "show", "tiny"}).err,
            "warning: TANDEM_SOMEBODY_ELSES is read by nobody: no setting and no variable of tandem has that name\n"
            "warning: TANDEM_STPES is read by nobody: no setting and no variable of tandem has that name; did you mean "
            "TANDEM_STEPS?\n");
  box.env.erase("TANDEM_STPES");
  box.env.erase("TANDEM_SOMEBODY_ELSES");
  box.env["TANDEM_AGENT"] = "analysis";  // of another recipe
  box.env["TANDEM_RUNS_ROOT"] = "elsewhere";
  box.env["TANDEM_LIFE_FD"] = "3";
  EXPECT_EQ(box.run({"config", "show", "tiny"}).err, "");
}

TEST(Errors, DevicesThatAreNotThere) {
  const Sandbox box;
  const std::string no_cuda =
      "this build has no CUDA\n"
      "  why    tandem was built without a CUDA toolkit, so it can train on CPU workers only\n"
      "  do     use `--devices cpu`, or build on a machine with nvcc\n";
  expect_error(box, {"train", "tiny", "--devices", "cuda:0"}, "error: devices \"cuda:0\": " + no_cuda);
  expect_error(box, {"train", "tiny", "--gpus", "0,1"}, "error: devices \"cuda:0,cuda:1\": " + no_cuda);
  expect_error(box, {"train", "tiny", "--num_gpus", "2"}, "error: devices \"cuda:0,cuda:1\": " + no_cuda);
  expect_error(box, {"train", "tiny", "--devices", "gpx:1"},
               "error: devices \"gpx:1\": \"gpx:1\" is no device\n"
               "  why    devices are named as auto, cpu, cpu:4, cpu:3@1,0.5,0.5 or cuda:0,cuda:2\n"
               "  do     use `--devices auto` for everything this machine has\n");
}

TEST(Errors, MoreWorkersThanShards) {
  const Sandbox box;
  expect_error(box, {"train", "tiny", "--devices", "cpu:25"},
               "error: 25 workers for 24 shards\n"
               "  why    a shard is the smallest piece of work; a worker without one would only wait\n"
               "  do     name at most 24 devices, or begin a new run with more shards (`--set shards=25`)\n");
}

TEST(Errors, ABatchThatDoesNotDivide) {
  const Sandbox box;
  expect_error(
      box, {"train", "tiny", "--batch-size", "100"},
      "error: a batch of 100 does not divide by 24 shards\n"
      "  why    every shard runs the same fixed number of samples, so that the result never depends on the machines\n"
      "  do     set batch_size to 96 or 120\n");
}

TEST(Errors, AFolderThatCannotBeMadeOrIsNotEmpty) {
  const Sandbox box;
  box.write("file", "");
  box.write("full/x", "");
  for (const char* flag : {"--run-dir", "--save-dir", "--output-dir", "--save_dir"}) {
    for (const char* dir : {"file/run", "full"}) {
      const ProgramResult result = box.run({"train", "tiny", flag, dir});
      EXPECT_EQ(result.code, 2) << flag << result.err;
      EXPECT_TRUE(result.err.starts_with("error: ")) << result.err;
      EXPECT_NE(result.err.find(dir), std::string::npos) << result.err;
      EXPECT_NE(result.err.find("  why    "), std::string::npos) << result.err;
      EXPECT_NE(result.err.find("  do     "), std::string::npos) << result.err;
    }
  }
}

TEST(Errors, NothingToResume) {
  const Sandbox box;
  expect_error(box, {"train", "tiny", "--resume"},
               "error: there is no run of tiny to resume\n"
               "  why    runs/ holds none\n"
               "  do     begin one with `tandem train tiny`, or name the folder of all runs with --runs-root\n");
  const ProgramResult result = box.run({"resume", "nothing"});
  EXPECT_EQ(result.code, 2) << result.err;
}

TEST(Errors, WithJsonTheErrorIsAnObjectToo) {
  const Sandbox box;
  const ProgramResult result = box.run({"train", "tinny", "--json"});
  EXPECT_EQ(result.code, 2);
  const auto object = nlohmann::json::parse(result.out);
  EXPECT_EQ(object["schema"], 1);
  EXPECT_EQ(object["error"]["code"], 2);
  EXPECT_EQ(object["error"]["what"], "there is no recipe \"tinny\"");
  EXPECT_EQ(object["error"]["do"], "did you mean `tiny`?");
  EXPECT_NE(result.err.find("error: there is no recipe"), std::string::npos);
}

TEST(Errors, AreRedOnlyWhereColourIsWanted) {
  Sandbox box;
  EXPECT_EQ(box.run({"trian"}).err.find('\x1b'), std::string::npos);  // no terminal
  box.env["CLICOLOR_FORCE"] = "1";
  EXPECT_TRUE(box.run({"trian"}).err.starts_with("\x1b[31merror:\x1b[0m"));
  EXPECT_EQ(box.run({"trian", "--no-color"}).err.find('\x1b'), std::string::npos);
  box.env["NO_COLOR"] = "1";
  EXPECT_EQ(box.run({"trian"}).err.find('\x1b'), std::string::npos);
}

TEST(Ranks, OfAnotherLauncherTakeTheGpuOfTheirLocalRankOrTheOneThatIsNamed) {
  const Machine gpus{.cuda_build = true, .cuda_devices = 2, .gpus = {{"GPU-a", "A"}, {"GPU-b", "B"}}};
  const auto names = [&](const char* text, const RankInfo& place, bool given = true) {
    std::string all;
    for (const DeviceSpec& device : devices_of_ranks(text, given, gpus, place))
      all += device.name() + (device.by_local_rank ? "? " : " ");
    return all;
  };
  EXPECT_EQ(names("", {.size = 2}), "cuda:0 cuda:1? ") << "which GPU rank 1 has, its own machine knows";
  EXPECT_EQ(names("", {.size = 2, .local_rank = 1}), "cuda:1 cuda:1? ");
  EXPECT_EQ(names("cuda:1", {.size = 2}), "cuda:1 cuda:1 ") << "one that all share";
  EXPECT_EQ(names("cpu:2", {.size = 2}), "cpu:0 cpu:1 ");
  EXPECT_EQ(names("cpu", {.size = 3}), "cpu:0 cpu:1 cpu:2 ");
  EXPECT_EQ(names("cpu:4", {.size = 2}, false), "cuda:0 cuda:1? ") << "the run began elsewhere";
  EXPECT_THROW(names("", {.size = 3, .local_rank = 2}), ConfigError) << "no such GPU";
  EXPECT_THROW(names("", {.size = 3, .local_size = 3}), ConfigError) << "two of three would find none";
  EXPECT_EQ(names("", {.size = 4, .local_size = 2}), "cuda:0 cuda:1? cuda:2? cuda:3? ") << "two machines";
  EXPECT_THROW(names("cpu:4", {.size = 2}), ConfigError);
}

}  // namespace
}  // namespace tandem
