// base/cores.h -- the cores of this machine, and how many of them prepare batches where nobody has said it.
#pragma once

#include <cstdint>
#include <optional>

namespace tandem {

int usable_cores();   // by this process; 1 if that can't be read
int gpus_in_place();  // NVIDIA GPUs that this machine, or this container, has a device file of

// The cores that one worker may count as its own.
struct CoreShare {
  int usable = 1, online = 1;   // by the launcher; on the machine
  std::optional<double> quota;  // cores' worth of time that its cgroup allows
  int workers = 1;              // that this launcher starts here
  int gpus = 0, ranks = 0;      // of the machine; of an outer launcher (torchrun, mpirun) on it
  // An outer launcher that bound us to some cores has made its division already.
  int cores() const;
};
inline constexpr char kWorkerCores[] = "TANDEM_WORKER_CORES";  // a worker's share of the cores
int worker_cores();                                            // its share; else all it may use

struct LoaderSize {
  int threads, prefetch;
};
// Threads of a worker that make batches, and batches made ahead. A number asked for is taken as it is. Below 0: on a
// GPU its share of the cores but one, eight at most, for a GPU takes what one core can make in no time; on the CPU
// one, since the cores compute; and two batches ahead to a thread.
LoaderSize loader_size(int64_t threads_asked, int64_t prefetch_asked, bool on_gpu, int cores);

}  // namespace tandem
