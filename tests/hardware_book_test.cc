// tests/hardware_book_test.cc -- the book of GPUs, and our hand-written nvml.h beside NVIDIA's where there is one.
#include <gtest/gtest.h>

#include "base/errors.h"
#include "hardware/gpu_models.h"
#include "hardware/nvml_api.h"
#if __has_include(<nvml.h>)
#include <nvml.h>
#endif

namespace tandem {
namespace {

TEST(GpuModels, KnowsGpusAsPeopleTypeThemAndAsNvmlCallsThem) {
  for (const auto& [typed, name] :
       std::initializer_list<std::pair<const char*, const char*>>{{"4090", "RTX 4090"},
                                                                  {"rtx 4090", "RTX 4090"},
                                                                  {"RTX-3060-Ti", "RTX 3060 Ti"},
                                                                  {"3060ti", "RTX 3060 Ti"},
                                                                  {"NVIDIA GeForce RTX 3060 Ti", "RTX 3060 Ti"},
                                                                  {"NVIDIA GeForce RTX 3070", "RTX 3070"},
                                                                  {"NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"},
                                                                  {"6000ada", "RTX 6000 Ada"},
                                                                  {"h100", "H100 SXM"},
                                                                  {"NVIDIA H100 80GB HBM3", "H100 SXM"},
                                                                  {"NVIDIA H100 PCIe", "H100 PCIe"},
                                                                  {"NVIDIA A100-SXM4-80GB", "A100 SXM 80GB"},
                                                                  {"NVIDIA A100-SXM4-40GB", "A100 SXM 40GB"},
                                                                  {"NVIDIA H200", "H200"},
                                                                  {"NVIDIA B200", "B200"},
                                                                  {"mi325x", "MI325X"},
                                                                  {"AMD Instinct MI325X", "MI325X"},
                                                                  {"Tesla T4", "T4"}}) {
    const GpuModel* gpu = find_gpu_model(typed);
    ASSERT_TRUE(gpu) << typed;
    EXPECT_EQ(gpu->name, name) << typed;
  }
  for (const char* other : {"", "NVIDIA GeForce RTX 3070 Laptop GPU", "3070 max-q", "quadro", "40"})
    EXPECT_FALSE(find_gpu_model(other)) << other;
  EXPECT_NE(find_gpu_model("mi325x")->why_no_training(), "");
  EXPECT_EQ(find_gpu_model("4090")->why_no_training(), "");
}

TEST(GpuModels, HasTheGuidesFigures) {
  EXPECT_EQ(find_gpu_model("3060ti")->cores, 4864);
  EXPECT_EQ(find_gpu_model("3070")->bandwidth_gb_per_s, 448);
  EXPECT_EQ(find_gpu_model("4090")->power_w, 450);
  EXPECT_EQ(find_gpu_model("2080ti")->memory_gb, 11);
}

TEST(GpuModels, EveryNameFindsItself) {
  for (const GpuModel& gpu : gpu_models()) {
    ASSERT_EQ(find_gpu_model(gpu.name), &gpu) << gpu.name;
    EXPECT_GT(gpu.memory_gb * gpu.cores * gpu.bandwidth_gb_per_s * gpu.power_w * gpu.fp32_tflops, 0) << gpu.name;
  }
}

TEST(GpuModels, ReadsMachines) {
  EXPECT_EQ(hardware_name(parse_hardware("3060ti+2x3070")), "RTX 3060 Ti + 2 x RTX 3070");
  EXPECT_EQ(parse_hardware("8xH100").size(), 8u);
  EXPECT_EQ(hardware_name(parse_hardware("6000ada, 2 x 4090")), "RTX 6000 Ada + 2 x RTX 4090");
  EXPECT_EQ(parse_hardware("4090").size(), 1u);
}

TEST(GpuModels, RefusesNonsenseAndNamesTheNearestGpu) {
  try {
    parse_hardware("8xH10");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(error.todo().find("H100"), std::string::npos) << error.render();
  }
  for (const char* bad : {"", "+", "0x4090", "99999x4090", "4090+", "8x", "x", "-1x4090", "1025x4090"})
    EXPECT_THROW(parse_hardware(bad), ConfigError) << bad;
}

TEST(NvmlApi, HasTheLayoutsOfNvidiasHeader) {
#if __has_include(<nvml.h>)
  EXPECT_EQ(sizeof(nvml::PciInfo), sizeof(nvmlPciInfo_t));
  EXPECT_EQ(offsetof(nvml::PciInfo, bus_id), offsetof(nvmlPciInfo_t, busId));
  EXPECT_EQ(sizeof(nvml::Memory), sizeof(nvmlMemory_t));
  EXPECT_EQ(offsetof(nvml::Memory, used), offsetof(nvmlMemory_t, used));
  EXPECT_EQ(sizeof(nvml::MemoryV2), sizeof(nvmlMemory_v2_t));
  EXPECT_EQ(offsetof(nvml::MemoryV2, free), offsetof(nvmlMemory_v2_t, free));
  EXPECT_EQ(sizeof(nvml::MemoryV2) | 2u << 24, nvmlMemory_v2);
  EXPECT_EQ(sizeof(nvml::ProcessInfo), sizeof(nvmlProcessInfo_t));
  EXPECT_EQ(offsetof(nvml::ProcessInfo, used_memory), offsetof(nvmlProcessInfo_t, usedGpuMemory));
  EXPECT_EQ(sizeof(nvml::ProcessInfoV1), sizeof(nvmlProcessInfo_v1_t));
  EXPECT_EQ(sizeof(nvml::EventData), sizeof(nvmlEventData_t));
  EXPECT_EQ(offsetof(nvml::EventData, data), offsetof(nvmlEventData_t, eventData));
  EXPECT_EQ(sizeof(nvml::FieldValue), sizeof(nvmlFieldValue_t));
  EXPECT_EQ(offsetof(nvml::FieldValue, value), offsetof(nvmlFieldValue_t, value));
  EXPECT_EQ(sizeof(nvml::Temperature), sizeof(nvmlTemperature_t));
  EXPECT_EQ(sizeof(nvml::Temperature) | 1u << 24, nvmlTemperature_v1);
  EXPECT_EQ(sizeof(nvml::Utilization), sizeof(nvmlUtilization_t));
  EXPECT_EQ(nvml::kGpuIsLost, NVML_ERROR_GPU_IS_LOST);
  EXPECT_EQ(nvml::kEventXid, nvmlEventTypeXidCriticalError);
  EXPECT_EQ(nvml::kFieldNvLinkSpeedCommon, NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON);
  EXPECT_EQ(nvml::kReasonThermalHw, nvmlClocksThrottleReasonHwThermalSlowdown);
  EXPECT_EQ(nvml::kReasonPowerBrake, nvmlClocksThrottleReasonHwPowerBrakeSlowdown);
#else
  GTEST_SKIP() << "no nvml.h here (PyPI's nvidia-nvml-dev has it)";
#endif
}

}  // namespace
}  // namespace tandem
