// train, resume and config through the real program, with a stand-in for the worker.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/file_system.h"
#include "checkpoint/store.h"
#include "command/run_program.h"
#include "config/resolver.h"
#include "recipes/shipped.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> out;
  std::stringstream stream(text);
  for (std::string line; std::getline(stream, line);) out.push_back(line);
  return out;
}

fs::path only_run(const Sandbox& box) {
  fs::path found;
  for (const auto& entry : fs::directory_iterator(box.dir() / "runs")) {
    if (entry.is_directory()) found = entry.path();
  }
  return found;
}

// A run of tiny in `dir` with checkpoints of these steps, made as the worker would.
void make_run(const Sandbox& box, const std::string& dir, const std::vector<int64_t>& steps) {
  ASSERT_EQ(box.run({"train", "tiny", "--run-dir", dir, "--steps", "50"}).code, 0);
  const auto settings = shipped_recipes().front().settings();
  Resolver resolver(*settings);
  CheckpointStore store(FileSystem::real(), box.dir() / dir / "checkpoints", 10);
  for (const int64_t step : steps) {
    const std::vector<float> values = {1.0f, 2.0f, static_cast<float>(step)};
    CheckpointContents contents;
    contents.step = step;
    contents.run_id = "tiny-run";
    contents.recipe = "tiny";
    contents.settings = resolver.result_values();
    contents.shards = 24;
    contents.kind = "test-kind";
    contents.scalars["update"] = {{"updates", step}};
    contents.model = {{"weight", DType::kF32, {3}, std::as_bytes(std::span(values))}};
    contents.state = contents.model;
    store.save(contents);
  }
}

TEST(Train, StartsTheWorkerWithTheRunsFolderAndNothingElseOfOurs) {
  Sandbox box;
  box.env["TANDEM_STAND_IN"] = "environment";
  const ProgramResult result = box.run({"train", "tiny", "--json", "-q", "--max_time", "90s"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(nlohmann::json::parse(result.out)["status"], "done");
  const fs::path run = only_run(box);
  const auto log = lines(box.read((fs::relative(run, box.dir()) / "logs/rank-0.log").string()));
  ASSERT_GE(log.size(), 5u);
  EXPECT_EQ(log[0], "args work " + fs::relative(run, box.dir()).string());
  EXPECT_EQ(log[1], "OMP_NUM_THREADS=1");
  EXPECT_EQ(log[2], "MKL_NUM_THREADS=1");
  EXPECT_EQ(log[3], "own group");
  EXPECT_EQ(log[4], "0 foreign descriptors");
  EXPECT_TRUE(fs::is_regular_file(run / "recipe.toml"));
}

TEST(Train, VerboseTellsShardsBatchDevicesAndPlanBeforeTheWorkerIsUp) {
  const Sandbox box;
  const auto said = lines(box.run({"train", "tiny", "-v", "--devices", "cpu:3"}).err);
  ASSERT_GE(said.size(), 3u);
  EXPECT_EQ(said[0], "tiny: 24 shards x 8 = global batch 192");
  EXPECT_EQ(said[1], "24 shards on 3 workers: 8 8 8 (cpu:0 cpu:1 cpu:2)");
  EXPECT_TRUE(said[2].starts_with("run runs/tiny-")) << said[2];
}

TEST(Train, TheResolvedRecipeTellsWhatSetEachValue) {
  Sandbox box;
  box.write("tandem.toml", "seed = 5\nsteps = 11\nloader.threads = 3\n");
  box.write(".config/tandem/tandem.toml", "seed = 4\ncheckpoint.keep = 9\n[recipes.tiny-rl]\nsteps = 1\n");
  box.write("my.toml", "recipe = \"tiny\"\nsteps = 12\nhidden = 32\nloader.threads = 4\n");
  box.env["TANDEM_STEPS"] = "13";
  box.env["TANDEM_OPTIMIZER_LEARNING_RATE"] = "0.5";
  ASSERT_EQ(box.run({"train", "my.toml", "--steps=14", "--save_dir", "out", "--num_workers", "5"}).code, 0);
  const std::string recipe = box.read("out/recipe.toml");
  const auto has = [&](const std::string& value, const std::string& source) {
    for (const std::string& line : lines(recipe)) {
      if (line.starts_with(value + " ") && line.ends_with("# " + source)) return true;
    }
    return false;
  };
  EXPECT_TRUE(has("steps = 14", "--steps")) << recipe;
  EXPECT_TRUE(has("learning_rate = 0.5", "TANDEM_OPTIMIZER_LEARNING_RATE")) << recipe;
  EXPECT_TRUE(has("hidden = 32", "my.toml:3")) << recipe;
  EXPECT_TRUE(has("threads = 5", "--loader-threads")) << recipe;
  EXPECT_TRUE(has("seed = 5", "tandem.toml:1")) << recipe;
  EXPECT_TRUE(has("keep = 9", (box.dir() / ".config/tandem/tandem.toml").string() + ":2")) << recipe;
  EXPECT_TRUE(has("dropout = 0.1", "default")) << recipe;
}

TEST(Train, EverySpellingOfAFlagWorks) {
  const Sandbox box;
  for (const std::vector<std::string>& flags : std::vector<std::vector<std::string>>{
           {"--batch-size", "48"}, {"--batch_size", "48"}, {"--batch_size=48"}, {"--set", "batch_size=48"}}) {
    std::vector<std::string> words = {"config", "show", "tiny", "--json"};
    words.insert(words.end(), flags.begin(), flags.end());
    const auto object = nlohmann::json::parse(box.run(words).out);
    EXPECT_EQ(object["values"]["batch_size"], 48) << flags[0];
  }
  const auto object =
      nlohmann::json::parse(box.run({"config", "show", "tiny", "--json", "--num_episodes", "3", "--learning_rate",
                                     "0.5", "--iterations", "4", "--exact", "--set", "clip_norm=2", "--set",
                                     "sync_bn=true", "--checkpoint_every", "500 steps", "--device", "cpu:2"})
                                .out);
  EXPECT_EQ(object["values"]["episodes"], 3);
  EXPECT_EQ(object["values"]["optimizer.learning_rate"], 0.5);
  EXPECT_EQ(object["values"]["exact"], "require");
  EXPECT_EQ(object["values"]["clip_norm"], 2.0);
  EXPECT_EQ(object["values"]["sync_bn"], true);
  EXPECT_EQ(object["values"]["checkpoint.every"], "500 steps");
  EXPECT_EQ(object["sources"]["devices"], "--devices");
  EXPECT_EQ(object["schema"], 1);
}

TEST(Train, ADryRunShowsThePlanAndMakesNothing) {
  const Sandbox box;
  const ProgramResult text = box.run({"train", "tiny", "--dry-run", "--devices", "cpu:2@1,0.5"});
  EXPECT_EQ(text.code, 0);
  EXPECT_NE(text.out.find("devices = \"cpu:2@1,0.5\""), std::string::npos);
  EXPECT_NE(text.err.find("24 shards on 2 workers: 16 8 (cpu:0 cpu:1)"), std::string::npos) << text.err;
  const auto object =
      nlohmann::json::parse(box.run({"train", "tiny", "--dry-run", "--json", "--devices", "cpu:3"}).out);
  EXPECT_EQ(object["global_batch"], 192);
  EXPECT_EQ(object["micro_batch"], 8);
  EXPECT_EQ(object["piece"], 8) << "the name in versions before";
  EXPECT_EQ(object["plan"][2]["shards"], nlohmann::json({16, 24}));
  EXPECT_FALSE(fs::exists(box.dir() / "runs"));
}

TEST(Train, ShardsOfTheDevicesAreFrozenForEveryResume) {
  Sandbox box;
  ASSERT_EQ(
      box.run({"train", "tiny", "--set", "shards=devices", "--batch-size", "8", "--devices", "cpu:3", "--run-dir", "r"})
          .code,
      0);
  ASSERT_EQ(box.run({"resume", "r", "--devices", "cpu:1"}).code, 0);
  const std::string recipe = box.read("r/recipe.toml");
  EXPECT_NE(recipe.find("shards = 3 "), std::string::npos) << recipe;
  EXPECT_NE(recipe.find("batch_size = 24 "), std::string::npos) << recipe;
}

TEST(Train, ASecondStartInTheSameFolderIsRefusedWhileTheFirstRuns) {
  Sandbox box;
  box.env["TANDEM_STAND_IN"] = "endless";
  int out = -1;
  const pid_t pid = box.start({"train", "tiny", "--run-dir", "r", "-q"}, out);
  while (box.read("r/logs/rank-0.log").find("at work") == std::string::npos)
    usleep(1000);  // lint: allow(sleep) polls a file
  const ProgramResult second = box.run({"resume", "r"});
  EXPECT_EQ(second.code, 2);
  EXPECT_NE(second.err.find("is in use"), std::string::npos) << second.err;
  kill(pid, SIGINT);
  EXPECT_EQ(Sandbox::wait(pid).code, 130);
  close(out);
}

TEST(Train, AWorkerThatDiesInItsStartAgainAndAgainIsAnErrorThatNamesItsLog) {
  Sandbox box;
  for (const std::string behaviour : {"die 11", "exit 3"}) {
    box.env["TANDEM_STAND_IN"] = behaviour;
    const ProgramResult result = box.run({"train", "tiny", "--json"});
    EXPECT_EQ(result.code, 1);
    EXPECT_EQ(nlohmann::json::parse(result.out)["error"]["code"], 1);
    EXPECT_NE(result.err.find("rank 0 (cpu:0)"), std::string::npos) << result.err;
    EXPECT_NE(result.err.find("logs/rank-"), std::string::npos) << result.err;
  }
}

TEST(Resume, AppliesWhatIsGivenAgainAndGoesOnFromTheNewestOrTheNamedOne) {
  Sandbox box;
  make_run(box, "r", {100, 200});
  const ProgramResult result = box.run({"resume", "r", "-v", "--steps", "500", "--devices", "cpu:2"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.err.find("resumed from step 200"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("resume r after step 200"), std::string::npos) << result.err;
  const std::string recipe = box.read("r/recipe.toml");
  EXPECT_NE(recipe.find("steps = 500 "), std::string::npos);
  for (std::vector<std::string> words :
       std::vector<std::vector<std::string>>{{"train", "tiny", "--resume", "--run-dir", "r"},
                                             {"train", "tiny", "--resume=./r"},
                                             {"train", "--resume", "./r/", "tiny"}}) {
    words.insert(words.end(), {"--steps", "900"});
    fs::remove_all(box.dir() / "r/checkpoints/step-00000900");
    const ProgramResult again = box.run(words);
    EXPECT_EQ(again.code, 0) << again.err;
    EXPECT_NE(again.err.find("resumed from step 500"), std::string::npos) << again.err;
  }
  make_run(box, "q", {100, 200});
  const ProgramResult older =
      box.run({"train", "tiny", "--checkpoint", "q/checkpoints/step-00000100", "--steps", "900"});
  EXPECT_NE(older.err.find("resumed from step 100 "), std::string::npos) << older.out << older.err;
}

TEST(Resume, TheNewestRunOfTheRecipeIsFound) {
  Sandbox box;
  ASSERT_EQ(box.run({"train", "tiny"}).code, 0);
  const fs::path run = only_run(box);
  ASSERT_EQ(box.run({"train", "tiny-rl"}).code, 0);
  const ProgramResult result = box.run({"train", "-v", "--resume", "tiny", "--steps", "9000"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.err.find("resume " + (fs::path("runs") / run.filename()).string()), std::string::npos) << result.err;
}

TEST(Resume, AnotherShardCountIsRefused) {
  Sandbox box;
  make_run(box, "r", {100});
  const ProgramResult result = box.run({"resume", "r", "--set", "shards=8"});
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.err.find(
                ": the checkpoint has 24 shards, the recipe asks for 8\n"
                "  why    the shard count fixes the random streams; 8 would be another experiment, not a continuation\n"
                "  do     set `shards = 24`, or begin anew with `tandem train`\n"),
            std::string::npos)
      << result.err;
  const ProgramResult seed = box.run({"resume", "r", "--seed", "9", "--set", "hidden=32"});
  EXPECT_EQ(seed.code, 2);
  EXPECT_NE(seed.err.find("`hidden` is 32, the checkpoint has 64; `seed` is 9, the checkpoint has 1"),
            std::string::npos)
      << seed.err;
}

TEST(Resume, ACheckpointOfANewerFormatIsRefused) {
  Sandbox box;
  make_run(box, "r", {100, 200});
  const std::string path = "r/checkpoints/step-00000200/manifest.json";
  std::string text = box.read(path);
  const size_t at = text.find("\"format\"");
  ASSERT_NE(at, std::string::npos);
  text.replace(text.find_first_of("0123456789", at), 1, "9");
  box.write(path, seal_manifest(text));
  const ProgramResult result = box.run({"resume", "r"});
  EXPECT_EQ(result.code, 5) << result.err;
  EXPECT_NE(result.err.find("newer"), std::string::npos) << result.err;
}

TEST(Resume, WithNoWholeCheckpointSaysWhyWithCode5) {
  Sandbox box;
  make_run(box, "r", {100});
  for (const std::string step : {"step-00000050", "step-00000100"})
    box.write("r/checkpoints/" + step + "/manifest.json", "{}");
  const ProgramResult result = box.run({"resume", "r"});
  EXPECT_EQ(result.code, 5) << result.err;
}

TEST(Weights, DigestAndExportAgreeHoweverTheyAreNamed) {
  Sandbox box;
  make_run(box, "r", {100, 200});
  const auto of_run = nlohmann::json::parse(box.run({"digest", "r", "--json"}).out);
  EXPECT_EQ(of_run["step"], 200);
  EXPECT_EQ(of_run["kind"], "test-kind");
  EXPECT_EQ(of_run["schema"], 1);
  const std::string digest = of_run["digest"];
  EXPECT_EQ(digest.size(), 64u);
  EXPECT_EQ(box.run({"digest", "r/checkpoints/step-00000200/"}).out, digest + "  r/checkpoints/step-00000200\n");
  const ProgramResult exported = box.run({"export", "r", "--output", "net.safetensors"});
  EXPECT_EQ(exported.code, 0) << exported.err;
  EXPECT_EQ(box.run({"digest", "net.safetensors", "-q"}).out, digest + "  net.safetensors\n");
  const auto old = nlohmann::json::parse(box.run({"export", "r", "--step", "100", "--json"}).out);
  EXPECT_NE(old["digest"], digest);
  EXPECT_TRUE(fs::exists(box.dir() / old["file"].get<std::string>()));
}

TEST(Train, FromKnowsTheRecipeByRecipeTomlAlone) {
  const Sandbox box;
  box.write("r/recipe.toml", "recipe = \"tiny\"\n");
  const ProgramResult result = box.run({"train", "--from", "r"});
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.err.find("tiny has no --from"), std::string::npos) << result.err;
}

TEST(Weights, ExportReplacesNothingUnaskedAndLeavesNoHalfFile) {
  Sandbox box;
  make_run(box, "r", {100});
  box.write("net.safetensors", "precious");
  EXPECT_EQ(box.run({"export", "r", "-o", "net.safetensors"}).code, 2);
  EXPECT_EQ(box.read("net.safetensors"), "precious");
  EXPECT_EQ(box.run({"export", "r", "-o", "net.safetensors", "--force"}).code, 0);
  EXPECT_EQ(box.run({"export", "r", "-o", "nowhere/net.safetensors"}).code, 2);
  EXPECT_EQ(box.run({"export", "r", "--step", "7"}).code, 2);
  for (const auto& entry : fs::directory_iterator(box.dir())) {
    EXPECT_EQ(entry.path().filename().string().find(".tmp-"), std::string::npos) << entry.path();
  }
}

TEST(Weights, ADamagedCheckpointIsNamedAndTheOneBeforeIsUsed) {
  Sandbox box;
  make_run(box, "r", {100, 200});
  const std::string path = "r/checkpoints/step-00000200/model.safetensors";
  std::string bytes = box.read(path);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  box.write(path, bytes);
  const ProgramResult result = box.run({"digest", "r", "--json"});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(nlohmann::json::parse(result.out)["step"], 100);
  EXPECT_NE(result.err.find("step-00000200"), std::string::npos) << result.err;
  EXPECT_EQ(box.run({"digest", "r/checkpoints/step-00000200"}).code, 5);
}

}  // namespace
}  // namespace tandem
