// tests/gpu/nccl_sum.cc -- doctor's sum by NCCL over the GPUs named, in nccl-tests' columns:
//   nccl_sum libnccl.so.2 0,1       (0,0 with NCCL 2.29 or later and NCCL_MULTI_RANK_GPU_ENABLE=1)
// Exit code 1 if a number is wrong or NCCL refuses.
#include <cstdio>
#include <cstdlib>

#include "hardware/cuda_links.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  std::vector<int> devices;
  for (char* at = argv[2]; *at; at += *at == ',') devices.push_back(static_cast<int>(std::strtol(at, &at, 10)));
  const tandem::NcclSum sum = tandem::measure_nccl_sum(argv[1], devices);
  int64_t wrong = 0;
  for (const tandem::BandwidthRow& row : sum.rows) {
    std::printf("%12lld %12lld %10.1f us %8.2f %8.2f GB/s %lld wrong\n", static_cast<long long>(row.bytes),
                static_cast<long long>(row.count), row.time_us, row.algbw_gb_per_s, row.busbw_gb_per_s,
                static_cast<long long>(row.wrong));
    wrong += row.wrong;
  }
  if (!sum.trouble.empty()) std::printf("%s\n", sum.trouble.c_str());
  return wrong > 0 || !sum.trouble.empty() ? 1 : 0;
}
