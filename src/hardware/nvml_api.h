// hardware/nvml_api.h -- the part of NVIDIA's nvml.h that we use, declared here: NVML is opened at run time, so that
// nothing of NVIDIA's is needed to build. tests/hardware_book_test.cc holds it against nvml.h where there is one.
#pragma once

#include <cstdint>

namespace tandem::nvml {

using Device = void*;
using EventSet = void*;
using Ret = int;

enum : Ret {
  kSuccess = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNoPermission = 4,
  kNotFound = 6,
  kInsufficientSize = 7,
  kDriverNotLoaded = 9,
  kTimeout = 10,
  kLibraryNotFound = 12,
  kFunctionNotFound = 13,
  kGpuIsLost = 15,
  kLibRmVersionMismatch = 18,
  kVersionMismatch = 25,
  kUnknown = 999,
};

constexpr int kBusIdLegacy = 16, kBusId = 32, kUuidBuffer = 96, kNameBuffer = 96, kMaxLinks = 36;
constexpr unsigned kThresholdShutdown = 0, kThresholdSlowdown = 1;
constexpr unsigned kClockSm = 1, kClockMemory = 2;
constexpr unsigned kPcieTx = 0, kPcieRx = 1;
constexpr unsigned kEccCorrected = 0, kEccUncorrected = 1, kEccVolatile = 0;
constexpr unsigned kNvLinkGpu = 0, kNvLinkSwitch = 2;
constexpr unsigned kP2pRead = 0, kP2pNvLink = 2;
constexpr unsigned long long kEventXid = 8;
constexpr unsigned kFieldNvLinkSpeedCommon = 90;  // MB/s
constexpr unsigned long long kNotAvailable = ~0ull;

constexpr unsigned long long kReasonIdle = 0x1, kReasonApplicationClocks = 0x2, kReasonPowerCap = 0x4,
                             kReasonHwSlowdown = 0x8, kReasonSyncBoost = 0x10, kReasonThermalSw = 0x20,
                             kReasonThermalHw = 0x40, kReasonPowerBrake = 0x80, kReasonDisplayClocks = 0x100;

struct PciInfo {
  char bus_id_legacy[kBusIdLegacy];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[kBusId];
};
struct Memory {
  unsigned long long total, free, used;
};
struct MemoryV2 {
  unsigned version;  // sizeof(MemoryV2) | 2 << 24
  unsigned long long total, reserved, free, used;
};
struct Utilization {
  unsigned gpu, memory;
};
struct ProcessInfoV1 {
  unsigned pid;
  unsigned long long used_memory;
};
struct ProcessInfo {
  unsigned pid;
  unsigned long long used_memory;
  unsigned gpu_instance, compute_instance;
};
struct EventData {
  Device device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};
struct Temperature {
  unsigned version;  // sizeof(Temperature) | 1 << 24
  unsigned sensor;
  int celsius;
};
union Value {
  double d;
  int i;
  unsigned u;
  unsigned long ul;
  unsigned long long ull;
  long long ll;
  unsigned short us;
};
struct FieldValue {
  unsigned field, scope;
  long long timestamp, latency_us;
  unsigned value_type;
  Ret result;
  Value value;
};

// X(name, arguments): every function that may be called.
#define TANDEM_NVML_FUNCTIONS(X)                                                                                \
  X(nvmlInit_v2, ())                                                                                            \
  X(nvmlShutdown, ())                                                                                           \
  X(nvmlSystemGetDriverVersion, (char*, unsigned))                                                              \
  X(nvmlSystemGetNVMLVersion, (char*, unsigned))                                                                \
  X(nvmlSystemGetCudaDriverVersion_v2, (int*))                                                                  \
  X(nvmlSystemGetProcessName, (unsigned, char*, unsigned))                                                      \
  X(nvmlDeviceGetCount_v2, (unsigned*))                                                                         \
  X(nvmlDeviceGetHandleByIndex_v2, (unsigned, ::tandem::nvml::Device*))                                         \
  X(nvmlDeviceGetName, (::tandem::nvml::Device, char*, unsigned))                                               \
  X(nvmlDeviceGetUUID, (::tandem::nvml::Device, char*, unsigned))                                               \
  X(nvmlDeviceGetPciInfo_v3, (::tandem::nvml::Device, ::tandem::nvml::PciInfo*))                                \
  X(nvmlDeviceGetMemoryInfo, (::tandem::nvml::Device, ::tandem::nvml::Memory*))                                 \
  X(nvmlDeviceGetMemoryInfo_v2, (::tandem::nvml::Device, ::tandem::nvml::MemoryV2*))                            \
  X(nvmlDeviceGetNumGpuCores, (::tandem::nvml::Device, unsigned*))                                              \
  X(nvmlDeviceGetCudaComputeCapability, (::tandem::nvml::Device, int*, int*))                                   \
  X(nvmlDeviceGetMemoryBusWidth, (::tandem::nvml::Device, unsigned*))                                           \
  X(nvmlDeviceGetMaxClockInfo, (::tandem::nvml::Device, unsigned, unsigned*))                                   \
  X(nvmlDeviceGetClockInfo, (::tandem::nvml::Device, unsigned, unsigned*))                                      \
  X(nvmlDeviceGetPowerManagementLimit, (::tandem::nvml::Device, unsigned*))                                     \
  X(nvmlDeviceGetEnforcedPowerLimit, (::tandem::nvml::Device, unsigned*))                                       \
  X(nvmlDeviceGetPowerManagementDefaultLimit, (::tandem::nvml::Device, unsigned*))                              \
  X(nvmlDeviceGetPowerManagementLimitConstraints, (::tandem::nvml::Device, unsigned*, unsigned*))               \
  X(nvmlDeviceSetPowerManagementLimit, (::tandem::nvml::Device, unsigned))                                      \
  X(nvmlDeviceGetPowerUsage, (::tandem::nvml::Device, unsigned*))                                               \
  X(nvmlDeviceGetTotalEnergyConsumption, (::tandem::nvml::Device, unsigned long long*))                         \
  X(nvmlDeviceGetTemperature, (::tandem::nvml::Device, unsigned, unsigned*))                                    \
  X(nvmlDeviceGetTemperatureV, (::tandem::nvml::Device, ::tandem::nvml::Temperature*))                          \
  X(nvmlDeviceGetTemperatureThreshold, (::tandem::nvml::Device, unsigned, unsigned*))                           \
  X(nvmlDeviceGetUtilizationRates, (::tandem::nvml::Device, ::tandem::nvml::Utilization*))                      \
  X(nvmlDeviceGetNumFans, (::tandem::nvml::Device, unsigned*))                                                  \
  X(nvmlDeviceGetFanSpeed, (::tandem::nvml::Device, unsigned*))                                                 \
  X(nvmlDeviceGetFanSpeed_v2, (::tandem::nvml::Device, unsigned, unsigned*))                                    \
  X(nvmlDeviceGetMinMaxFanSpeed, (::tandem::nvml::Device, unsigned*, unsigned*))                                \
  X(nvmlDeviceSetFanSpeed_v2, (::tandem::nvml::Device, unsigned, unsigned))                                     \
  X(nvmlDeviceSetDefaultFanSpeed_v2, (::tandem::nvml::Device, unsigned))                                        \
  X(nvmlDeviceGetFanControlPolicy_v2, (::tandem::nvml::Device, unsigned, unsigned*))                            \
  X(nvmlDeviceGetCurrPcieLinkGeneration, (::tandem::nvml::Device, unsigned*))                                   \
  X(nvmlDeviceGetCurrPcieLinkWidth, (::tandem::nvml::Device, unsigned*))                                        \
  X(nvmlDeviceGetMaxPcieLinkGeneration, (::tandem::nvml::Device, unsigned*))                                    \
  X(nvmlDeviceGetMaxPcieLinkWidth, (::tandem::nvml::Device, unsigned*))                                         \
  X(nvmlDeviceGetPcieThroughput, (::tandem::nvml::Device, unsigned, unsigned*))                                 \
  X(nvmlDeviceGetNumaNodeId, (::tandem::nvml::Device, unsigned*))                                               \
  X(nvmlDeviceGetNvLinkState, (::tandem::nvml::Device, unsigned, unsigned*))                                    \
  X(nvmlDeviceGetNvLinkRemotePciInfo_v2, (::tandem::nvml::Device, unsigned, ::tandem::nvml::PciInfo*))          \
  X(nvmlDeviceGetNvLinkRemoteDeviceType, (::tandem::nvml::Device, unsigned, unsigned*))                         \
  X(nvmlDeviceGetFieldValues, (::tandem::nvml::Device, int, ::tandem::nvml::FieldValue*))                       \
  X(nvmlDeviceGetP2PStatus, (::tandem::nvml::Device, ::tandem::nvml::Device, unsigned, unsigned*))              \
  X(nvmlDeviceGetTopologyCommonAncestor, (::tandem::nvml::Device, ::tandem::nvml::Device, unsigned*))           \
  X(nvmlDeviceGetPersistenceMode, (::tandem::nvml::Device, unsigned*))                                          \
  X(nvmlDeviceGetEccMode, (::tandem::nvml::Device, unsigned*, unsigned*))                                       \
  X(nvmlDeviceGetTotalEccErrors, (::tandem::nvml::Device, unsigned, unsigned, unsigned long long*))             \
  X(nvmlDeviceGetCurrentClocksEventReasons, (::tandem::nvml::Device, unsigned long long*))                      \
  X(nvmlDeviceGetCurrentClocksThrottleReasons, (::tandem::nvml::Device, unsigned long long*))                   \
  X(nvmlDeviceGetComputeRunningProcesses_v3, (::tandem::nvml::Device, unsigned*, ::tandem::nvml::ProcessInfo*)) \
  X(nvmlDeviceGetComputeRunningProcesses_v2, (::tandem::nvml::Device, unsigned*, ::tandem::nvml::ProcessInfo*)) \
  X(nvmlDeviceGetComputeRunningProcesses, (::tandem::nvml::Device, unsigned*, ::tandem::nvml::ProcessInfoV1*))  \
  X(nvmlDeviceGetMigMode, (::tandem::nvml::Device, unsigned*, unsigned*))                                       \
  X(nvmlDeviceGetMaxMigDeviceCount, (::tandem::nvml::Device, unsigned*))                                        \
  X(nvmlDeviceGetMigDeviceHandleByIndex, (::tandem::nvml::Device, unsigned, ::tandem::nvml::Device*))           \
  X(nvmlDeviceGetSupportedEventTypes, (::tandem::nvml::Device, unsigned long long*))                            \
  X(nvmlDeviceRegisterEvents, (::tandem::nvml::Device, unsigned long long, ::tandem::nvml::EventSet))           \
  X(nvmlEventSetCreate, (::tandem::nvml::EventSet*))                                                            \
  X(nvmlEventSetWait_v2, (::tandem::nvml::EventSet, ::tandem::nvml::EventData*, unsigned))                      \
  X(nvmlEventSetFree, (::tandem::nvml::EventSet))

}  // namespace tandem::nvml
