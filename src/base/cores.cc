#include "base/cores.h"

#include <sched.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace tandem {

int usable_cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

int gpus_in_place() {
  int gpus = 0;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/dev", none)) {
    const std::string name = entry.path().filename();
    constexpr std::string_view kGpu = "nvidia";
    gpus += name.size() > kGpu.size() && name.starts_with(kGpu) &&
            std::all_of(name.begin() + kGpu.size(), name.end(), [](unsigned char c) { return std::isdigit(c); });
  }
  return gpus;
}

int CoreShare::cores() const {
  int by = std::max(1, workers);
  if (usable >= online) by = std::max({by, gpus, ranks});
  const int mine = quota ? std::min(usable, static_cast<int>(std::ceil(*quota))) : usable;
  return std::max(1, mine / by);
}

int worker_cores() {
  const char* share = std::getenv(kWorkerCores);
  const int cores = share ? std::atoi(share) : 0;
  return cores > 0 ? cores : usable_cores();
}

LoaderSize loader_size(int64_t threads_asked, int64_t prefetch_asked, bool on_gpu, int cores) {
  constexpr int kMost = 8;
  const int threads = threads_asked >= 0 ? static_cast<int>(threads_asked)
                      : on_gpu           ? std::clamp(cores - 1, 1, kMost)
                                         : 1;
  return {threads, prefetch_asked >= 0 ? static_cast<int>(prefetch_asked) : std::max(2, 2 * threads)};
}

}  // namespace tandem
