// launch/rank_info.h -- which process of a job this is, where another launcher started it: torchrun, mpirun, srun, or a
// script that sets the usual variables. Pure: the variables are given.
//
// Read, in this order: RANK, WORLD_SIZE, LOCAL_RANK (torchrun and most scripts); OMPI_COMM_WORLD_* (Open MPI);
// SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID (srun); PMI_RANK, PMI_SIZE (MPICH). MASTER_ADDR and MASTER_PORT say where
// rank 0 listens.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace tandem {

// The value of an environment variable, or null.
using Variables = std::function<const char*(const char*)>;

struct RankInfo {
  int rank = 0, size = 1, local_rank = 0;
  int local_size = 0;     // ranks on this machine; 0: not known
  std::string by;         // "torchrun", "Open MPI", "Slurm", "MPICH", "RANK and WORLD_SIZE"
  std::string address;    // of rank 0: a name or an IP address; loopback where all ranks are on one machine
  int first_port = 0;     // rank 0 listens on the first free one of kPorts from here on
  std::string job;        // the same on all ranks, another for another job
  bool restarts = false;  // its launcher starts a job that failed again: it goes on with its run then
  static constexpr int kPorts = 16;
};

// Nothing if this process is on its own (or the only one). `local_rank_flag`: --local-rank, as torch.distributed.launch
// gives it. Throws ConfigError if the variables make no sense.
std::optional<RankInfo> rank_info_in(const Variables& variable, std::optional<int64_t> local_rank_flag = std::nullopt);

// Whether whatever started this process starts jobs again that failed (torchrun --max-restarts) or were requeued.
bool restarts_in(const Variables& variable);

// The first host of Slurm's list: "node[03-05,7],gpu1" is node03.
std::string first_host(const std::string& list);

}  // namespace tandem
