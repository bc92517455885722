// tests/hardware_test.cc -- NVML, CUDA's driver library and the machine, as tandem reads them from fake machines.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "fake_script.h"
#include "hardware/cuda_driver.h"
#include "hardware/driver_check.h"
#include "hardware/machine.h"
#include "hardware/nvml.h"

namespace tandem {
namespace {

using Kind = NvmlStatus::Kind;

bool has(const GpuReading& reading, Throttle reason) {
  return reading.throttle &&
         std::find(reading.throttle->begin(), reading.throttle->end(), reason) != reading.throttle->end();
}

TEST(Nvml, WithoutADriverSaysSoInTheLoadersWords) {
  setenv("TANDEM_NVML", "/nonexistent/libnvidia-ml.so.1", 1);
  const auto nvml = Nvml::open();
  unsetenv("TANDEM_NVML");
  EXPECT_EQ(nvml->status().kind, Kind::kNoLibrary);
  EXPECT_NE(nvml->status().words.find("/nonexistent/libnvidia-ml.so.1"), std::string::npos);
  EXPECT_EQ(nvml->count(), 0);
  EXPECT_FALSE(nvml->driver_version());
  EXPECT_EQ(nvml->set_power_limit(0, 100).kind, Kind::kNoLibrary);
}

TEST(Nvml, ALibraryWithoutItsKernelModuleIsNoDriver) {
  const FakeScript script(R"({"preset": "1xh200", "init": 9})");
  const auto nvml = Nvml::open();
  EXPECT_EQ(nvml->status().kind, Kind::kNoDriver);
  EXPECT_EQ(nvml->status().words, "Driver Not Loaded");
  EXPECT_TRUE(nvml->facts().empty());
}

TEST(Nvml, ReadsTheFirstGuidesMachine) {
  const FakeScript script(R"({"preset": "3060ti+2x3070"})");
  const auto nvml = Nvml::open();
  ASSERT_TRUE(nvml->status().ok()) << nvml->status().words;
  EXPECT_EQ(nvml->driver_version(), "580.65.06");
  EXPECT_EQ(nvml->cuda_version(), 13000);
  const auto facts = nvml->facts();
  ASSERT_EQ(facts.size(), 3u);
  EXPECT_EQ(facts[0].name, "NVIDIA GeForce RTX 3060 Ti");
  EXPECT_EQ(facts[0].cuda_cores, 4864);
  EXPECT_EQ(facts[0].sms, 38);
  EXPECT_EQ(facts[1].cuda_cores, 5888);
  EXPECT_EQ(facts[0].memory_bytes, 8ull << 30);
  EXPECT_NEAR(*facts[0].bandwidth_bytes_per_s, 448e9, 1e9);
  EXPECT_EQ(facts[0].power_limit_w, 200);
  EXPECT_EQ(facts[1].power_limit_w, 220);
  EXPECT_EQ(facts[0].power_min_w, 100);
  EXPECT_EQ(facts[0].slowdown_c, 95);
  EXPECT_EQ(facts[0].fans, 2);
  EXPECT_EQ(facts[0].pcie_width_max, 16);
  EXPECT_TRUE(facts[0].nvlink_peers.empty());
  EXPECT_FALSE(facts[0].mig_on);  // this GPU has none: absent, not off
  EXPECT_FALSE(facts[0].ecc_mode);
  EXPECT_EQ(nvml->link(0, 1).peer_read, false);
}

TEST(Nvml, SeesBridgesAndSwitches) {
  {
    const FakeScript script(R"({"preset": "4x2080ti"})");
    const auto facts = Nvml::open()->facts();
    ASSERT_EQ(facts[0].nvlink_peers.size(), 1u);
    EXPECT_EQ(facts[0].nvlink_peers[0].gpu, 1);
    EXPECT_EQ(facts[3].nvlink_peers[0].gpu, 2);
    EXPECT_EQ(Nvml::open()->link(0, 1).topology, "NV2");
    EXPECT_EQ(Nvml::open()->link(0, 2).topology, "PHB");
  }
  const FakeScript script(R"({"preset": "8xh100"})");
  const auto nvml = Nvml::open();
  EXPECT_TRUE(nvml->facts(0).nvlink_peers[0].is_switch);
  EXPECT_EQ(nvml->link(2, 7).topology, "NV18");
  EXPECT_EQ(nvml->link(2, 7).peer_read, true);
  EXPECT_NEAR(*nvml->facts(0).nvlink_bytes_per_s, 26.562e9, 1e6);
}

TEST(Nvml, AMissingValueIsAbsentNeverZero) {
  const FakeScript script(
      R"({"preset": "4xh100", "refuse": {"nvmlDeviceGetPowerUsage": 3, "nvmlDeviceGetTemperature": 3,
    "nvmlDeviceGetTemperatureV": 3, "nvmlDeviceGetUtilizationRates": 3, "nvmlDeviceGetComputeRunningProcesses_v3": 4,
    "nvmlDeviceGetTotalEnergyConsumption": 3, "nvmlDeviceGetNumGpuCores": {"1": 3}}})");
  const auto nvml = Nvml::open();
  const GpuReading reading = nvml->reading(0);
  EXPECT_TRUE(reading.trouble.empty());
  EXPECT_FALSE(reading.power_w);
  EXPECT_FALSE(reading.temperature_c);
  EXPECT_FALSE(reading.utilisation_percent);
  EXPECT_FALSE(reading.energy_j);
  EXPECT_FALSE(reading.fan_percent);  // a GPU without fans
  EXPECT_FALSE(reading.processes);
  EXPECT_TRUE(reading.memory_used_bytes);
  EXPECT_EQ(nvml->facts(0).cuda_cores, 16896);
  EXPECT_FALSE(nvml->facts(1).cuda_cores);
  EXPECT_FALSE(nvml->facts(1).sms);
}

TEST(Nvml, AnOldLibraryLeavesOutWhatItLacks) {
  const FakeScript script(R"({"preset": "4x2080ti", "driver": "410.48", "cuda": 10000, "every": {"load": 1}})",
                          FAKE_NVML_OLD);
  const auto nvml = Nvml::open();
  ASSERT_TRUE(nvml->status().ok());
  const GpuFacts facts = nvml->facts(0);
  EXPECT_EQ(facts.name, "NVIDIA GeForce RTX 2080 Ti");
  EXPECT_FALSE(facts.cuda_cores);
  EXPECT_FALSE(facts.bandwidth_bytes_per_s);
  const GpuReading reading = nvml->reading(0);
  EXPECT_TRUE(reading.memory_used_bytes);
  EXPECT_TRUE(reading.fan_percent);  // through the older call
  EXPECT_TRUE(reading.throttle);
  EXPECT_FALSE(reading.energy_j);
  EXPECT_TRUE(reading.processes);
  EXPECT_EQ(nvml->set_fan(0, 80).kind, Kind::kNoFunction);
  EXPECT_EQ(nvml->next_xid(0).status.kind, Kind::kNoFunction);
}

TEST(Nvml, HeatFollowsLoadAndPowerLimitAndFan) {
  const FakeScript script(
      R"({"gpus": [{"card": "3070", "load": 1, "hot_c": 92, "ambient_c": 25, "tau_s": 20, "start_c": 40}],
                              "clock": {"stepped": true}})");
  const auto nvml = Nvml::open();
  EXPECT_EQ(nvml->reading(0).temperature_c, 40);
  script.set_clock(20);
  EXPECT_EQ(nvml->reading(0).temperature_c, 73);  // 92 - 52 / e
  script.set_clock(400);
  GpuReading reading = nvml->reading(0);
  EXPECT_EQ(reading.temperature_c, 92);
  EXPECT_TRUE(has(reading, Throttle::kThermalSw));
  EXPECT_FALSE(has(reading, Throttle::kThermalHw));
  EXPECT_LT(*reading.sm_clock_mhz, *reading.sm_clock_max_mhz);
  EXPECT_NEAR(*reading.energy_j, 400 * 220, 1);
  ASSERT_TRUE(nvml->set_power_limit(0, 110).ok());
  reading = nvml->reading(0);
  EXPECT_EQ(reading.power_w, 110);
  EXPECT_TRUE(has(reading, Throttle::kPowerCap));
  script.set_clock(800);
  EXPECT_EQ(nvml->reading(0).temperature_c, 59);  // 25 + 67 / 2
  ASSERT_TRUE(nvml->restore_power_limit(0).ok());
  EXPECT_EQ(nvml->reading(0).power_limit_w, 220);
  ASSERT_TRUE(nvml->set_fan(0, 100).ok());
  script.set_clock(1200);
  EXPECT_EQ(nvml->reading(0).temperature_c, 69);  // a third less above the room
  ASSERT_TRUE(nvml->set_fan_auto(0).ok());
  script.set_load(0, 0.25);  // three quarters of its shards went elsewhere
  nvml->reading(0);
  script.set_clock(1600);
  EXPECT_EQ(nvml->reading(0).temperature_c, 45);
  EXPECT_EQ(nvml->reading(0).utilisation_percent, 25);
}

TEST(Nvml, APowerLimitOutlivesTheProcessThatSetIt) {
  const FakeScript script(R"({"preset": "3060ti+2x3070"})");
  const pid_t child = fork();
  if (child == 0) {
    const auto nvml = Nvml::open();
    nvml->set_power_limit(1, 150);
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  const auto nvml = Nvml::open();
  EXPECT_EQ(nvml->reading(1).power_limit_w, 150);
  EXPECT_EQ(nvml->facts(1).power_default_w, 220);
  EXPECT_NE(script.log().find("power_limit gpu=1 value=150"), std::string::npos);
}

TEST(Nvml, RefusesInNvmlsOwnWords) {
  const FakeScript script(R"({"preset": "6000ada+4090", "power_permission": false, "fan_permission": false})");
  const auto nvml = Nvml::open();
  const NvmlStatus refused = nvml->set_power_limit(1, 300);
  EXPECT_EQ(refused.kind, Kind::kNoPermission);
  EXPECT_EQ(refused.words, "Insufficient Permissions");
  EXPECT_EQ(nvml->set_fan(0, 80).kind, Kind::kNoPermission);
  EXPECT_EQ(nvml->set_power_limit(5, 300).kind, Kind::kInvalid);
  EXPECT_EQ(nvml->set_power_limit(1, -3).kind, Kind::kInvalid);
  EXPECT_EQ(nvml->reading(1).power_limit_w, 450);
}

TEST(Nvml, ALimitOutsideTheGpusOwnIsInvalid) {
  const FakeScript script(R"({"preset": "6000ada+4090"})");
  EXPECT_EQ(Nvml::open()->set_power_limit(1, 60).kind, Kind::kInvalid);
}

TEST(Nvml, AVanishedGpuIsLostAndTheOthersStay) {
  const FakeScript script(
      R"({"preset": "4xh100", "clock": {"stepped": true}, "events": [{"at": 30, "gpu": 2, "lost": true}]})");
  const auto nvml = Nvml::open();
  EXPECT_FALSE(nvml->reading(2).lost);
  script.set_clock(31);
  EXPECT_TRUE(nvml->reading(2).lost);
  EXPECT_EQ(nvml->reading(2).trouble, "GPU is lost");
  EXPECT_FALSE(nvml->reading(2).memory_used_bytes);
  EXPECT_EQ(nvml->facts(2).trouble, "GPU is lost");
  EXPECT_FALSE(nvml->reading(1).lost);
  const auto later = Nvml::open();  // who comes later sees the same
  EXPECT_EQ(later->count(), 4);
  EXPECT_TRUE(later->reading(2).lost);
  EXPECT_EQ(later->set_power_limit(2, 300).kind, Kind::kGpuLost);
}

TEST(Nvml, XidEventsComeOnceEach) {
  const FakeScript script(R"({"preset": "4xh100", "clock": {"stepped": true},
    "events": [{"at": 5, "gpu": 1, "xid": 79}, {"at": 6, "gpu": 3, "xid": 48}]})");
  const auto nvml = Nvml::open();
  EXPECT_EQ(nvml->next_xid(0).status.kind, Kind::kTimeout);
  script.set_clock(7);
  const auto first = nvml->next_xid(1000), second = nvml->next_xid(1000);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first.value->gpu, 1);
  EXPECT_EQ(first.value->xid, 79u);
  EXPECT_EQ(second.value->gpu, 3);
  EXPECT_EQ(nvml->next_xid(0).status.kind, Kind::kTimeout);
  EXPECT_TRUE(xid_meaning(79).fatal);
  EXPECT_NE(xid_meaning(79).meaning.find("fallen off the bus"), std::string::npos);
  EXPECT_NE(xid_meaning(123456).todo.find("docs.nvidia.com"), std::string::npos);
}

TEST(Nvml, ShowsPartsOfAGpu) {
  const FakeScript script(
      R"({"gpus": [{"card": "H100", "mig": [{"name": "NVIDIA H100 80GB HBM3 MIG 3g.40gb", "memory_gb": 40},
                              {"name": "NVIDIA H100 80GB HBM3 MIG 4g.40gb", "memory_gb": 40}]}, {"card": "H100"}]})");
  const auto facts = Nvml::open()->facts();
  EXPECT_EQ(facts[0].mig_on, true);
  ASSERT_EQ(facts[0].mig.size(), 2u);
  EXPECT_TRUE(facts[0].mig[1].uuid.starts_with("MIG-"));
  EXPECT_EQ(facts[0].mig[1].memory_bytes, 40ull << 30);
  EXPECT_EQ(facts[1].mig_on, false);
}

TEST(Nvml, NamesProcessesAndHidesWhatTheDriverDoesNotTell) {
  const FakeScript script(
      R"({"preset": "1xh200", "gpus": [{"processes": [{"pid": 4242, "memory_mb": 2048, "name": "python3"}, {"pid": 4243}]}]})");
  const auto processes = Nvml::open()->reading(0).processes;
  ASSERT_TRUE(processes && processes->size() == 2);
  EXPECT_EQ((*processes)[0].memory_bytes, 2048ull << 20);
  EXPECT_EQ((*processes)[0].name, "python3");
  EXPECT_FALSE((*processes)[1].memory_bytes);
}

TEST(CudaDriver, ShowsWhatCudaVisibleDevicesLeaves) {
  const FakeScript script(R"({"preset": "3060ti+2x3070"})");
  EXPECT_EQ(ask_cuda_driver().devices.size(), 3u);
  setenv("CUDA_VISIBLE_DEVICES", "2,0", 1);
  const CudaDriver two = ask_cuda_driver();
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  const CudaDriver none = ask_cuda_driver();
  unsetenv("CUDA_VISIBLE_DEVICES");
  ASSERT_EQ(two.devices.size(), 2u);
  EXPECT_EQ(two.devices[0].uuid, Nvml::open()->facts(2).uuid);
  EXPECT_EQ(two.peers[0][1], false);
  EXPECT_FALSE(two.peers[0][0]);
  EXPECT_EQ(none.init_code, CudaDriver::kNoDevice);
  EXPECT_EQ(none.trouble, "CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected");
}

TEST(CudaDriver, WithoutALibrarySaysSo) {
  setenv("TANDEM_LIBCUDA", "/nonexistent/libcuda.so.1", 1);
  const CudaDriver driver = ask_cuda_driver();
  unsetenv("TANDEM_LIBCUDA");
  EXPECT_FALSE(driver.library_found);
  EXPECT_FALSE(driver.trouble.empty());
}

TEST(Machine, KnowsItself) {
  const MachineFacts facts = machine_facts();
  EXPECT_GT(facts.cpu.logical, 0);
  EXPECT_GT(facts.cpu.usable, 0);
  EXPECT_GT(*facts.memory.total_bytes, 1u << 20);
  EXPECT_LE(*usable_memory_bytes(facts.memory), *facts.memory.total_bytes);
  EXPECT_FALSE(facts.kernel.empty());
  EXPECT_GT(disk_facts("/tmp/not/yet/there")->total_bytes, 0u);
}

TEST(Machine, SeesTheLeastLimitOfItsCgroups) {
  const TempDir root;
  namespace fs = std::filesystem;
  const fs::path group = root.path() / "sys/fs/cgroup/user/job";
  fs::create_directories(group);
  fs::create_directories(root.path() / "proc/self");
  const auto write = [](const fs::path& path, const std::string& text) { std::ofstream(path) << text << "\n"; };
  write(root.path() / "proc/self/cgroup", "0::/user/job");
  write(root.path() / "proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB");
  write(root.path() / "proc/cpuinfo",
        "processor : 0\nphysical id : 0\ncore id : 0\n\nprocessor : 1\nphysical id : 0\ncore id : 0");
  write(group / "memory.max", "max");
  write(group / "memory.current", "1073741824");
  write(group / "cpu.max", "150000 100000");
  write(group.parent_path() / "memory.max", "4294967296");
  const MachineFacts facts = machine_facts_below(root.path());
  EXPECT_EQ(facts.memory.cgroup_limit_bytes, 4ull << 30);
  EXPECT_EQ(usable_memory_bytes(facts.memory), 3ull << 30);
  write(group / "memory.stat", "anon 536870912\nactive_file 134217728\ninactive_file 134217728\nshmem 4096");
  EXPECT_EQ(usable_memory_bytes(machine_facts_below(root.path()).memory), (3ull << 30) + (256 << 20));
  EXPECT_EQ(facts.cpu.quota, 1.5);
  EXPECT_EQ(facts.cpu.logical, 2);
  EXPECT_EQ(facts.cpu.cores, 1);
  EXPECT_FALSE(facts.cpu.model);
}

TEST(DriverCheck, JudgesByTheCudaThatTheDriverRunsElseByItsOwnVersion) {
  EXPECT_TRUE(driver_is_old({"535.183.01", 12020}));
  EXPECT_FALSE(driver_is_old({"580.65.06", 13000}));
  EXPECT_FALSE(driver_is_old({"535.183.01", 13000})) << "with NVIDIA's cuda-compat";
  EXPECT_TRUE(driver_is_old({"535.183.01", {}}));
  EXPECT_FALSE(driver_is_old({"580.65.06", {}}));
  EXPECT_FALSE(driver_is_old({})) << "it tells nothing";
  EXPECT_TRUE(driver_is_old({"575.57.08", {}})) << "the newest before 580";
  EXPECT_FALSE(driver_is_old({"N/A", {}})) << "no version at all";
  EXPECT_EQ(driver_text({"535.54.03", 12020}), "535.54.03, up to CUDA 12.2");
}

TEST(DriverCheck, AdvisesWhatThisSystemTakes) {
  EXPECT_EQ(newer_driver_advice("Ubuntu 24.04.1 LTS", {}), "sudo apt install nvidia-driver-580 && sudo reboot");
  EXPECT_NE(newer_driver_advice("Debian GNU/Linux 12 (bookworm)", {}).find("nvidia-open"), std::string::npos);
  EXPECT_NE(newer_driver_advice("Ubuntu 24.04.1 LTS", "docker").find("of the host"), std::string::npos);
  EXPECT_NE(newer_driver_advice("Ubuntu 24.04.1 LTS", "wsl").find("Windows"), std::string::npos);
  EXPECT_NE(newer_driver_advice({}, {}).find("nvidia.com/drivers"), std::string::npos);
  const OldDriverError error({"525.147.05", 12000});
  EXPECT_EQ(std::string(error.what()), "the NVIDIA driver is too old: 525.147.05, up to CUDA 12.0");
  EXPECT_EQ(error.code(), ExitCode::kUsage);
  EXPECT_NE(error.todo().find("`--devices cpu`"), std::string::npos);
}

TEST(Machine, NamesCoresThatHaveNoModelName) {
  const TempDir root;
  std::filesystem::create_directories(root.path() / "proc");
  const auto model = [&](const std::string& implementer, const std::string& part) {
    std::ofstream(root.path() / "proc/cpuinfo")
        << "processor\t: 0\nCPU implementer\t: " << implementer << "\nCPU part\t: " << part << "\n";
    return machine_facts_below(root.path()).cpu.model;
  };
  EXPECT_EQ(model("0x41", "0xd4f"), "Arm Neoverse V2");
  EXPECT_EQ(model("0x61", "0x022"), "Arm implementer 0x61, part 0x022");
}

}  // namespace
}  // namespace tandem
