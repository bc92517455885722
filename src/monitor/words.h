// monitor/words.h -- single values of a sample as people read them; "-" stands for what could not be read.
#pragma once

#include <optional>
#include <string>

#include "monitor/sample.h"

namespace tandem {

std::string percent_text(std::optional<double> percent);                             // "93 %"
std::string memory_text(std::optional<uint64_t> used, std::optional<uint64_t> all);  // "61.2/141 GB"
std::string power_text(const GpuFacts& facts, const GpuReading& gpu);                // "640/700 W"
std::string temperature_text(const GpuFacts& facts, const GpuReading& gpu);          // "71/87 C": now/slowdown
std::string clocks_text(const GpuReading& gpu);                                      // "1980/2619 MHz": SM/memory
std::string traffic_text(const GpuReading& gpu);                                     // "1.2/0.3 GB/s": in/out
std::string ecc_text(const GpuReading& gpu);                                         // "0/0": corrected/uncorrected
std::string throttle_text(const GpuReading& gpu);                                    // "the power limit"; "" for none
std::string short_gpu_name(const GpuFacts& facts);                                   // without "NVIDIA GeForce"
std::string short_throttle_text(const GpuReading& gpu);         // "heat, power"; empty if nothing holds it back
std::string driver_text(const MonitorSample& sample);           // "535.54.03 (older than CUDA 13.0 needs)"
std::string gpu_note(const MonitorSample& sample, size_t gpu);  // "held back by heat; MIG: 2 instances"
std::string process_text(const MonitorSample& sample,
                         const GpuProcess& process);  // "4711 tandem-worker 60 GB r6k9da rank 0"

std::string step_text(const RunReading& run);   // "84 of 300"
std::string rate_text(const RunReading& run);   // "12.1 steps/s, 2.3k samples/s"
std::string head_text(const RunReading& run);   // "analysis web-test-...-a1b2c3/analysis"
std::string phase_text(const RunReading& run);  // "learn 97 % combine 3 %"
std::string shards_text(const RankReading& rank);
std::string rank_state_text(const RankReading& rank);  // "computing learn"

// Of the whole, in [0, 1]: where a bar ends. Absent if one of the two is.
std::optional<double> part_of(std::optional<double> value, std::optional<double> whole);

}  // namespace tandem
