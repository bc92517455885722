// Devices, durations and spelling: small grammars, by example.
#include <gtest/gtest.h>

#include "base/errors.h"
#include "config/devices.h"
#include "config/recipe_list.h"
#include "config/spelling.h"
#include "config/units.h"

namespace tandem {
namespace {

const Machine kPlain{};
const Machine kTwoGpus{.cuda_build = true, .cuda_devices = 2};

std::string names(std::string_view text, const Machine& machine = kPlain) {
  std::string out;
  for (const DeviceSpec& device : parse_devices(text, machine)) out += device.name() + " ";
  return out;
}

std::string device_error(std::string_view text, const Machine& machine = kPlain) {
  try {
    parse_devices(text, machine);
  } catch (const ConfigError& error) {
    EXPECT_FALSE(error.why().empty());
    EXPECT_FALSE(error.todo().empty());
    return error.what();
  }
  return "no error";
}

TEST(Devices, AreReadAsTheUserNamesThem) {
  EXPECT_EQ(names(""), "cpu:0 ");
  EXPECT_EQ(names("auto"), "cpu:0 ");
  EXPECT_EQ(names("auto", kTwoGpus), "cuda:0 cuda:1 ");
  EXPECT_EQ(names("cpu"), "cpu:0 ");
  EXPECT_EQ(names("cpu:4"), "cpu:0 cpu:1 cpu:2 cpu:3 ");
  EXPECT_EQ(names("cuda:1,cuda:0", kTwoGpus), "cuda:1 cuda:0 ");
  EXPECT_EQ(names("cuda:1,cpu:2", kTwoGpus), "cuda:1 cpu:0 cpu:1 ");
  const auto slowed = parse_devices("cpu:3@1,0.5,0.25", kPlain);
  EXPECT_EQ(slowed.at(0).speed, 1);
  EXPECT_EQ(slowed.at(1).speed, 0.5);
  EXPECT_EQ(slowed.at(2).speed, 0.25);
}

TEST(Devices, SlowedSlotsShareCoresWhereTheyFit) {
  const auto cores = [](std::string_view text, std::vector<int> own) {
    std::vector<int> found;
    for (const DeviceSpec& device : parse_devices(text, {.cores = std::move(own)})) found.push_back(device.core);
    return found;
  };
  EXPECT_EQ(cores("cpu:3@1,0.5,0.25", {4, 6}), (std::vector{4, 6, 6}));
  EXPECT_EQ(cores("cpu:3@0.5,1,0.5", {4, 6}), (std::vector{4, 6, 4}));
  EXPECT_EQ(cores("cpu:2@1,0.5", {4}), (std::vector{-1, -1})) << "more work than cores: the system's to divide";
  EXPECT_EQ(cores("cpu:2", {4, 6}), (std::vector{-1, -1}));
  EXPECT_EQ(cores("cpu:2@1/7,0.5/4", {4, 6}), (std::vector{7, 4})) << "named ones are taken as they are";
}

TEST(Devices, ATextOfThemMeansTheSameToAnotherProcess) {
  for (const char* text : {"cpu:3@1,0.5,0.5", "cpu:2", "cuda:1,cuda:0", "cuda:1,cpu:1", "cpu:1@0.25/3"}) {
    Machine machine = kTwoGpus;
    machine.cores = {4, 6};
    const auto devices = parse_devices(text, machine);
    const auto again = parse_devices(devices_text(devices), machine);
    ASSERT_EQ(again.size(), devices.size()) << text;
    for (size_t i = 0; i < devices.size(); ++i) {
      EXPECT_EQ(again[i].name(), devices[i].name()) << text;
      EXPECT_EQ(again[i].speed, devices[i].speed) << text;
      EXPECT_EQ(again[i].core, devices[i].core) << text;
    }
  }
  EXPECT_EQ(devices_text(parse_devices("cpu:3@1,0.5,0.5", {.cores = {0, 1}})), "cpu:1,cpu:1,cpu:1@1/0,0.5/1,0.5/1");
}

TEST(Devices, SeveralWorkersMayShareAGpu) { EXPECT_EQ(names("cuda:0,cuda:0", kTwoGpus), "cuda:0 cuda:0 "); }

TEST(Gpus, CudaVisibleDevicesKeepsItsMeaning) {
  const std::vector<GpuId> all{{"GPU-aa11", "A"}, {"GPU-bb22", "B"}, {"GPU-cc33", "C"}};
  const auto shown = [&](const char* text) {
    std::string out;
    for (const GpuId& gpu : visible_gpu_ids(all, text)) out += gpu.uuid + " ";
    return out;
  };
  EXPECT_EQ(shown(nullptr), "GPU-aa11 GPU-bb22 GPU-cc33 ");
  EXPECT_EQ(shown(""), "");
  EXPECT_EQ(shown("2, 0"), "GPU-cc33 GPU-aa11 ");
  EXPECT_EQ(shown("GPU-bb,1"), "GPU-bb22 GPU-bb22 ");
  EXPECT_EQ(shown("0,-1,1"), "GPU-aa11 ") << "the list ends at what names no GPU";
  EXPECT_EQ(shown("1,7,0"), "GPU-bb22 ");
  EXPECT_EQ(shown("MIG-x/1/0,0"), "MIG-x/1/0 GPU-aa11 ");
  EXPECT_EQ(shown("none"), "");
}

TEST(Devices, BadOnesAreRefusedWithTheReason) {
  EXPECT_EQ(device_error("cuda:0"), "devices \"cuda:0\": this build has no CUDA");
  EXPECT_EQ(device_error("cuda:0", {.cuda_build = true}), "devices \"cuda:0\": no CUDA device is visible");
  EXPECT_EQ(device_error("cuda:2", kTwoGpus), "devices \"cuda:2\": no such device cuda:2");
  EXPECT_EQ(device_error("cuda:-1", kTwoGpus), "devices \"cuda:-1\": \"-1\" is no device number");
  EXPECT_EQ(device_error("cpu:0"), "devices \"cpu:0\": \"0\" is no number of CPU workers");
  EXPECT_EQ(device_error("cpu:99999"), "devices \"cpu:99999\": \"99999\" is no number of CPU workers");
  EXPECT_EQ(device_error("cpu:"), "devices \"cpu:\": \"\" is no number of CPU workers");
  EXPECT_EQ(device_error("3"), "devices \"3\": \"3\" is no device");
  EXPECT_EQ(device_error("cpu,"), "devices \"cpu,\": a name is missing");
  EXPECT_EQ(device_error("cpu:2@1"), "devices \"cpu:2@1\": 1 speed for 2 devices");
  EXPECT_EQ(device_error("cpu:2@1,2"), "devices \"cpu:2@1,2\": \"2\" is no speed");
  EXPECT_EQ(device_error("cpu:1@nan"), "devices \"cpu:1@nan\": \"nan\" is no speed");
  EXPECT_EQ(device_error("cpu:1000,cpu:1000"), "devices \"cpu:1000,cpu:1000\": too many workers");
}

TEST(Devices, MoreWorkersThanShardsAreRefused) {
  EXPECT_NO_THROW(check_workers(24, 24));
  try {
    check_workers(25, 24);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "25 workers for 24 shards");
  }
}

TEST(Units, DurationsAreReadAndSlipsAreNot) {
  EXPECT_EQ(parse_duration("90s"), 90);
  EXPECT_EQ(parse_duration("10m"), 600);
  EXPECT_EQ(parse_duration("2h"), 7200);
  EXPECT_EQ(parse_duration("1h30m"), 5400);
  EXPECT_EQ(parse_duration("1.5h"), 5400);
  EXPECT_EQ(parse_duration("250ms"), 0.25);
  EXPECT_EQ(parse_duration(" 45 "), 45);
  for (const char* slip : {"", "s", "1x", "-5s", "30m1h", "1h30", "1h1h", "inf", "nan", "1e3s", "1h 2"}) {
    EXPECT_FALSE(parse_duration(slip)) << slip;
  }
}

TEST(Units, IntervalsAreByTimeOrBySteps) {
  EXPECT_EQ(parse_interval("60s")->seconds, 60);
  EXPECT_EQ(parse_interval("500 steps")->steps, 500);
  EXPECT_EQ(parse_interval("1 step")->steps, 1);
  EXPECT_EQ(parse_interval("never")->seconds, 0);
  EXPECT_EQ(parse_interval("500 steps")->seconds, 0);
  for (const char* slip : {"", "0s", "0 steps", "-1 steps", "steps", "5 stps"})
    EXPECT_FALSE(parse_interval(slip)) << slip;
}

TEST(Spelling, OneSlipOfAnyKindIsDistanceOne) {
  EXPECT_EQ(spelling_distance("steps", "steps"), 0);
  EXPECT_EQ(spelling_distance("stpes", "steps"), 1);  // neighbours swapped
  EXPECT_EQ(spelling_distance("step", "steps"), 1);
  EXPECT_EQ(spelling_distance("stteps", "steps"), 1);
  EXPECT_EQ(spelling_distance("staps", "steps"), 1);
  EXPECT_EQ(spelling_distance("batch-size", "batch_size"), 0);
  EXPECT_EQ(spelling_distance("", "abc"), 3);
}

TEST(Spelling, NoGuessIsBetterThanABadOne) {
  const std::vector<std::string> words = {"train", "resume", "runs", "optimizer.learning_rate"};
  EXPECT_EQ(nearest_word("trian", words), "train");
  EXPECT_EQ(nearest_word("run", words), "runs");
  EXPECT_EQ(nearest_word("learning_rat", words), "optimizer.learning_rate");
  EXPECT_EQ(nearest_word("xylophone", words), "");
  EXPECT_EQ(nearest_word("", words), "");
}

TEST(RecipeList, AnUnknownNameGetsTheNearestAndTheList) {
  const std::vector<RecipeInfo> recipes = {{"tiny", "", nullptr}, {"tiny-rl", "", nullptr}};
  EXPECT_EQ(find_recipe(recipes, "tiny-rl").name, "tiny-rl");
  try {
    find_recipe(recipes, "tinny");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.render(),
              "error: there is no recipe \"tinny\"\n  why    the recipes are: tiny, tiny-rl\n  do     did you mean "
              "`tiny`?\n");
  }
}

}  // namespace
}  // namespace tandem
