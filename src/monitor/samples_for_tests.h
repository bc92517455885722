// monitor/samples_for_tests.h -- samples of machines that are not here.
#pragma once

#include <string>

#include "monitor/sample.h"

namespace tandem {

inline MonitorSample sample_for_tests(int gpus, int runs, double time = 1'800'000'000) {
  MonitorSample sample;
  sample.time = time;
  sample.host = {"box", 32, 41.5, 12.25, uint64_t{270'000'000'000}, uint64_t{81'000'000'000}};
  if (gpus > 0) sample.driver = "580.65.06";
  for (int i = 0; i < gpus; ++i) {
    GpuFacts facts;
    facts.index = i;
    facts.name = "NVIDIA H100 80GB HBM3";
    facts.uuid = "GPU-" + std::to_string(i);
    facts.memory_bytes = 85'000'000'000;
    facts.power_limit_w = 700;
    facts.slowdown_c = 87;
    GpuReading gpu;
    gpu.index = i;
    gpu.memory_used_bytes = 60'000'000'000 + uint64_t{1'000'000'000} * i;
    gpu.utilisation_percent = 90 + i;
    gpu.power_w = 640.5;
    gpu.power_limit_w = 700;
    gpu.temperature_c = 70 + 3 * i;
    gpu.sm_clock_mhz = 1980;
    gpu.memory_clock_mhz = 2619;
    gpu.ecc_corrected = 3;
    gpu.ecc_uncorrected = 0;
    gpu.pcie_rx_bytes_per_s = 1.2e9;
    gpu.pcie_tx_bytes_per_s = 3e8;
    gpu.throttle = std::vector<Throttle>{Throttle::kPowerCap};
    gpu.processes = std::vector<GpuProcess>{{4711u + i, 60'000'000'000, "/opt/tandem-worker"}};
    sample.facts.push_back(facts);
    sample.gpus.push_back(gpu);  // no fan: it is cooled by the case
  }
  for (int i = 0; i < runs; ++i) {
    RunReading run;
    run.id = "tiny-20261115-190920-r6k9d" + std::to_string(i);
    run.recipe = "tiny";
    run.status = "running";
    run.dir = "/data/runs/" + run.id;
    run.started = "2026-11-15T19:09:20Z";
    run.step = 84;
    run.total_steps = 300;
    run.unit = "samples";
    run.loss = 0.4312;
    run.window_loss = 0.44;
    run.steps_per_s = 12.1;
    run.samples_per_s = 2323;
    run.seconds_left = 18;
    run.phases = {{"learn", 0.97}, {"combine", 0.03}};
    run.event_kind = "plan";
    run.event_text = "generation 1: 24 shards on 2 workers: 12 12 (rank 0: 0-11, rank 1: 12-23)";
    run.event_time = time - 5;
    for (int r = 0; r < 2; ++r) {
      RankReading rank;
      rank.rank = r;
      rank.device = gpus > 0 ? "cuda:" + std::to_string(r) : "cpu:" + std::to_string(r);
      rank.state = "computing";
      rank.phase = "learn";
      rank.first_shard = 12 * r;
      rank.shards = 12;
      rank.shards_per_s = 803.2;
      rank.busy_percent = 91;
      rank.pid = 4711 + r;
      rank.cpu_percent = 99;
      rank.memory_bytes = 212'000'000;
      run.ranks.push_back(rank);
    }
    sample.runs.push_back(run);
  }
  return sample;
}

}  // namespace tandem
