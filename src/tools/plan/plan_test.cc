// `tandem plan` and `tandem bench` as far as they go without a worker; tests/python/plan_test.py has the rest.
#include "tools/plan/plan.h"

#include <gtest/gtest.h>

#include "command/run_program.h"
#include "command/trial_run.h"
#include "tools/plan/set_model.h"

namespace tandem {
namespace {

TEST(Plan, RefusesBadQuestionsBeforeAnythingIsMeasured) {
  const Sandbox box;
  const auto refused = [&](std::vector<std::string> words, const std::string& said) {
    words.insert(words.begin(), "plan");
    const ProgramResult result = box.run(words);
    EXPECT_EQ(result.code, 2) << result.err;
    EXPECT_NE(result.err.find(said), std::string::npos) << result.err;
    EXPECT_EQ(result.err.find("measuring"), std::string::npos) << result.err;
    EXPECT_EQ(result.out, "");
  };
  refused({}, "tandem plan tiny");
  refused({"tinny"}, "tiny");
  refused({"tiny", "--hardware", "8xH1000"}, "H100");
  refused({"tiny", "--hardware", "65xH100"}, "at most 64");
  refused({"tiny", "--devices", "cpu:2", "--gpus", "1..3"}, "--hardware 8xH100");
  refused({"tiny", "--devices", "cpu:2", "--gpus", "two"}, "--gpus 1..8");
  refused({"tiny", "--batch", "12x"}, "--batch 128,256,512");
  refused({"tiny", "--batch", "100"}, "shards");
  refused({"tiny", "--batch", "192,100"}, "shards");
  refused({"tiny", "--precision", "bf61"}, "bf16");
  refused({"tiny", "--price-kwh", "-1"}, "kilowatt-hour");
  refused({"tiny", "--budget", "0"}, "in seconds");
  refused({"tiny", "--prices", "nowhere.toml"}, "--make-prices");
  refused({"tiny", "--price-kwh", "nan"}, "kilowatt-hour");
  for (const char* flag : {"--hardware", "--gpus", "--batch", "--precision"})
    refused({"tiny", flag, ""}, "nothing is named");
  refused({"tiny", "--precision", "tf32", "--devices", "cpu:1"}, "TF32");
  refused({"tiny", "--batch", "0"}, "from 1 on");
  refused({"tiny-rl", "--batch", "24000000"}, "no trial on this machine can tell of it");
  refused({"tiny-rl", "--batch", "192,24000000"}, "up to 192000");
  refused({"tiny", "--hardware", "32xH100", "--gpus", "25"}, "24 shards");
  refused({"tiny", "--csv", "nowhere/t.csv"}, "there is no folder nowhere");
  refused({"tiny", "--csv", "."}, "it is a folder");
  refused({"web-test", "--batch", "128"}, "plan web-agent");
  box.write("prices.toml", "[cloud.mine]\nhardware = \"8xH1000\"\nper_hour = 3\n");
  refused({"tiny", "--prices", "prices.toml"}, "H1000");
  box.write("prices.toml", "[cloud.mine]\nhardware = \"8xH100\"\n");
  refused({"tiny", "--prices", "prices.toml"}, "per_hour = 3.06");
  for (const char* price : {"-1", "nan", "inf", "1e300"}) {
    box.write("prices.toml", std::string("[electricity]\nprice_kwh = ") + price + "\n");
    refused({"tiny", "--prices", "prices.toml"}, "price");
  }
}

// A trial must run, and be known again, as the device that the plan is about.
TEST(Plan, ATrialOfASlotAtFullSpeedKeepsItsCore) {
  EXPECT_EQ(devices_named({{.speed = 1, .core = 0}}), "cpu:1@1/0");
  EXPECT_EQ(devices_named({{.speed = 1}, {.speed = 1}}), "cpu:2");
}

TEST(Plan, TheErrorSaysWhereItComesFrom) {
  PlanReport report;
  report.calibration = {.recipe = "tiny", .machine = "vm", .made = "then", .cores = 2, .load = 11.7, .trials = {}};
  report.rows.resize(1);
  report.rows[0].error = 5.85;
  EXPECT_EQ(
      error_line(report),
      "error     x7 (up to 7 times as long, or as short): others kept 11.7 of 2 cores busy while it was measured; "
      "on a quiet machine: --calibrate\n");
  report.calibration.load = .1;
  report.rows[0].error = .08;
  EXPECT_EQ(error_line(report), "error     +-8 %: the trials varied by so much, and more where no trial was made\n");
  report.here = false;
  report.scaled_from = "an H200 measured before (docs/results.md); here there is no GPU";
  report.rows[0].error = .6;
  EXPECT_EQ(error_line(report), "error     +-60 %: by data sheets; with a GPU to measure here it would be +-35 %\n");
  EXPECT_EQ(error_text(1), "+-100 %");
  EXPECT_EQ(error_line(PlanReport()), "");
}

// What `plan` measured of each agent is what the choice of a plan counts with, not the mean of all.
TEST(Plan, TrialsTellOfEachAgentByItselfAndARunOfSeveralWhatTheyAdd) {
  const auto job = [](const std::string& agent, std::vector<std::string> members = {}) {
    PreparedJob one;
    one.job.agent = agent;
    for (const std::string& member : members) one.job.members.push_back({member, member, 0});
    one.settings = std::make_unique<RecipeSettings>();
    one.settings->batch_size = 256;
    return one;
  };
  const auto took = [](double seconds) {
    Trial trial;
    trial.devices = {{"RTX 3070", 1, -1}};
    trial.batch = 256;
    trial.steps = 1000;
    trial.step_seconds = trial.compute_seconds = seconds;
    trial.samples = 256;
    trial.shape.weights_bytes = 1e6;
    return Calibration{.recipe = "web-agent", .machine = "", .made = "", .cores = 2, .load = 0, .trials = {trial}};
  };
  const PreparedJob quick = job("analysis"), slow = job("evolution"), both = job("", {"analysis", "evolution"});
  const std::vector<TriedJob> agents = {{&quick, took(300e-6)}, {&slow, took(1200e-6)}};
  const std::vector<DeviceSpec> gpus = {{.kind = DeviceSpec::Kind::kCuda, .gpu = {"uuid", "RTX 3070"}}};
  const auto costs = costs_by_trials(agents, std::nullopt, gpus).at("RTX 3070");
  EXPECT_NEAR(costs.at("analysis").alone(), 300e-6, 1e-12);
  EXPECT_NEAR(costs.at("evolution").alone(), 1200e-6, 1e-12);
  const auto beside = costs_by_trials(agents, TriedJob{&both, took(1250e-6)}, gpus).at("RTX 3070");
  EXPECT_NEAR(beside.at("analysis").more, 50e-6, 1e-12) << "what it added to the slower one";
  EXPECT_NEAR(beside.at("evolution").alone(), 1200e-6, 1e-12);
  const std::vector<DeviceSpec> other = {{.kind = DeviceSpec::Kind::kCuda, .gpu = {"uuid", "RTX 4090"}}};
  EXPECT_TRUE(costs_by_trials(agents, std::nullopt, other).empty()) << "nobody tried that one";
}

TEST(Plan, StdoutTakesOneAnswer) {
  const Sandbox box;
  for (const char* command : {"plan", "bench"}) {
    const ProgramResult result = box.run({command, "tiny", "--json", "--csv", "-"});
    EXPECT_EQ(result.code, 2) << result.err;
    EXPECT_NE(result.err.find("--csv table.csv"), std::string::npos) << result.err;
  }
}

TEST(Plan, WritesAPriceListOnceAndReadsItBack) {
  const Sandbox box;
  const ProgramResult made = box.run({"plan", "--make-prices", "--prices", "prices.toml"});
  EXPECT_EQ(made.code, 0) << made.err;
  EXPECT_EQ(made.out, "prices.toml\n");
  EXPECT_EQ(box.run({"plan", "--make-prices", "--prices", "prices.toml"}).code, 2) << "it may have been edited";
  const ProgramResult json = box.run({"plan", "--make-prices", "--prices", "more.toml", "--json"});
  EXPECT_NE(json.out.find("\"prices\":\"more.toml\""), std::string::npos) << json.out;
}

TEST(Bench, NamesTheBenchmarksThereAre) {
  const Sandbox box;
  for (const std::vector<std::string>& words : {std::vector<std::string>{"bench", "chess"},
                                                {"bench", "tiny", "--rounds", "0"},
                                                {"bench", "tiny", "--batch", "x"},
                                                {"bench", "tiny", "--batch", "192,100"},
                                                {"bench", "tiny", "--csv", "nowhere/t.csv"},
                                                {"bench", "tiny", "--plot", "nowhere/p.html"}}) {
    const ProgramResult result = box.run(words);
    EXPECT_EQ(result.code, 2) << result.err;
    EXPECT_EQ(result.err.find("round 1"), std::string::npos) << result.err;
  }
  EXPECT_NE(box.run({"bench", "chess"}).err.find("web-test"), std::string::npos);
}

}  // namespace
}  // namespace tandem
