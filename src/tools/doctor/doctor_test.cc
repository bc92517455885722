// What doctor says of what it could not see.
#include "tools/doctor/doctor.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

std::string disk_line(std::optional<double> bytes_per_s) {
  PlaceSeen place;
  place.runs_root = "runs";
  place.disk = DiskFacts{};
  place.disk->free_bytes = place.disk->total_bytes = uint64_t{100} << 30;
  place.write_bytes_per_s = bytes_per_s;
  for (const Finding& finding : judge_place(place, {}))
    if (finding.check == "disk") return finding.found;
  return "";
}

TEST(Doctor, ASlowDiskIsNotOneOfNoSpeedAtAll) {
  EXPECT_NE(disk_line(0.4e6).find("0.40 MB/s"), std::string::npos) << disk_line(0.4e6);
  EXPECT_NE(disk_line(512e6).find(", 512 MB/s"), std::string::npos) << disk_line(512e6);
  EXPECT_NE(disk_line({}).find("speed not measured"), std::string::npos) << disk_line({});
}

TEST(Doctor, TheReportSaysUnknownForCoresThatNobodyCounts) {
  PlaceSeen place;
  place.machine.cpu.logical = place.machine.cpu.usable = 8;
  place.machine.cpu.sockets = 2;
  const std::string text = doctor_report({}, {}, {}, place, {}, "");
  EXPECT_NE(text.find("8 usable, unknown cores, 2 sockets, unknown NUMA nodes"), std::string::npos) << text;
}

TEST(Doctor, ARecipeThatIsNotMadeForItIsNotTried) {
  CliContext context;
  context.recipes = {{"huge", "a week on eight GPUs", [] { return std::make_unique<RecipeSettings>(); }}};
  context.worker = "/bin/sh";
  EXPECT_EQ(recipe_to_try(context), nullptr);
  WorkerTrial trial(context, "/nowhere");
  for (const Finding& finding : {trial.finish(), trial.try_gpus({})}) {
    EXPECT_EQ(finding.verdict, Verdict::kOk);
    EXPECT_EQ(finding.found, "not tried: no recipe of this program is made for it");
  }
  context.recipes.push_back(context.recipes.front());
  context.recipes.back().tries_machine = true;
  EXPECT_EQ(recipe_to_try(context), &context.recipes.back());
}

TEST(Doctor, ARecipeWhoseCheckpointsTakeMoreThanTheDiskHasIsAWarning) {
  CliContext context;
  context.recipes = {{"large", "a large replay buffer", [] { return std::make_unique<RecipeSettings>(); }}};
  context.recipes[0].need = {1, 0.1};
  context.recipes[0].checkpoint_bytes = [](const RecipeSettings&) { return uint64_t{2'000'000'000}; };
  PlaceSeen place;
  place.disk = DiskFacts{};
  const auto finding = [&](uint64_t free) {
    place.disk->free_bytes = free;
    return judge_recipes(context, {}, place).at(0);
  };
  EXPECT_EQ(finding(7'000'000'000).verdict, Verdict::kOk);
  EXPECT_NE(finding(7'000'000'000).found.find("up to 6 GB of checkpoints"), std::string::npos);
  EXPECT_EQ(finding(5'000'000'000).verdict, Verdict::kWarning);
  EXPECT_NE(finding(5'000'000'000).found.find("and the disk has 5 GB"), std::string::npos);
  EXPECT_NE(finding(5'000'000'000).todo.find("tandem runs prune"), std::string::npos);
}

TEST(Doctor, OfAProcessOnlyItsProgramIsNamed) {
  EXPECT_EQ(program_of("/opt/x/python3 train.py --key=a/b"), "python3");
  EXPECT_EQ(program_of("python3"), "python3");
  EXPECT_EQ(program_of("/usr/bin/"), "/usr/bin/");
}

// `count` GPUs that are well, as NVML and CUDA show them.
GpusSeen gpus_seen(int count) {
  GpusSeen gpus;
  gpus.cuda_build = true;
  gpus.cuda = CudaDriver{.library_found = true};
  for (int i = 0; i < count; ++i) {
    const std::string uuid = "GPU-" + std::to_string(i);
    GpuFacts facts;
    facts.index = i;
    facts.uuid = uuid;
    gpus.facts.push_back(facts);
    gpus.now.emplace_back();
    gpus.cuda->devices.push_back({.uuid = uuid, .name = {}});
  }
  return gpus;
}

std::string advised(const Findings& findings, const GpusSeen& gpus) {
  return devices_flag(usable_gpus(findings, gpus), gpus);
}

TEST(Doctor, TheCommandNamesTheGpusWithoutAFault) {
  const GpusSeen three = gpus_seen(3);
  EXPECT_EQ(usable_gpus({}, three).size(), 3u);
  EXPECT_EQ(advised({}, three), "") << "all of them: nothing has to be named";
  EXPECT_EQ(advised({{"ECC", Verdict::kProblem, "errors", "", 1}}, three), "--devices cuda:0,cuda:2");
  EXPECT_EQ(advised({{"heat", Verdict::kWarning, "warm", "", 1}}, three), "") << "a warning is no fault";
  EXPECT_TRUE(usable_gpus({{"driver", Verdict::kProblem, "too old"}}, three).empty()) << "of all GPUs";
}

TEST(Doctor, ALostGpuHasNoNumberAndTheOthersAreNamed) {
  GpusSeen gpus = gpus_seen(4);
  gpus.facts[1].uuid.reset();
  gpus.cuda->devices.erase(gpus.cuda->devices.begin() + 1);
  const Findings lost{{"card", Verdict::kProblem, "GPU 1: GPU is lost", "", 1}};
  EXPECT_EQ(advised(lost, gpus), "--devices cuda:0,cuda:1,cuda:2");
  EXPECT_EQ(usable_gpus(lost, gpus)[1].gpu, 2);
}

TEST(Doctor, GpusAreNumberedAsCudaVisibleDevicesLeavesThem) {
  GpusSeen gpus = gpus_seen(4);
  gpus.visible_devices = "3,1";
  gpus.cuda->devices = {{.uuid = "GPU-3", .name = {}}, {.uuid = "GPU-1", .name = {}}};
  EXPECT_EQ(advised({}, gpus), "");
  EXPECT_EQ(advised({{"ECC", Verdict::kProblem, "errors", "", 3}}, gpus), "--devices cuda:1");
  EXPECT_EQ(advised({{"ECC", Verdict::kProblem, "errors", "", 0}}, gpus), "") << "it is hidden";
}

}  // namespace
}  // namespace tandem
