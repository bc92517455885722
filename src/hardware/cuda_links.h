// hardware/cuda_links.h -- how fast data moves between GPUs and to the host: copies by CUDA's driver library, and a
// sum over all GPUs by NCCL. Both libraries are opened at run time; the GPUs' memory is given back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tandem {

struct HostLink {
  int device = 0;  // in CUDA's order
  double up_gb_per_s = 0, down_gb_per_s = 0;
};

struct PeerLink {
  int from = 0, to = 0;
  bool direct = false;  // peer access; else the driver goes through host memory
  double gb_per_s = 0;
  std::string unmapped;  // why `to` can't read memory of `from` as kernels do; empty: it read what was written there
};

struct MeasuredLinks {
  std::vector<HostLink> host;
  std::vector<PeerLink> peers;  // of all pairs, both ways
  std::string trouble;          // why there is no more of it
};

// Copies of `bytes` from pinned memory and between all pairs of the visible GPUs, the fastest of a few.
MeasuredLinks measure_gpu_links(int64_t bytes = int64_t{64} << 20);

// One line of nccl-tests' table.
struct BandwidthRow {
  int64_t bytes = 0, count = 0;
  double time_us = 0, algbw_gb_per_s = 0, busbw_gb_per_s = 0;
  int64_t wrong = 0;
};

struct NcclSum {
  std::vector<BandwidthRow> rows;
  std::string trouble;
};

// An all-reduce over `devices` (in CUDA's order; the same one twice where NCCL allows it) by the NCCL in `library`.
NcclSum measure_nccl_sum(const std::string& library, const std::vector<int>& devices,
                         int64_t most_bytes = int64_t{128} << 20);

}  // namespace tandem
