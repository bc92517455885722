// command/ranks.h -- `train` and `resume` where another launcher (torchrun, mpirun, srun) started one process per
// device.
//
// Rank 0 does what was asked, with a worker here and the others' workers elsewhere; the other ranks hold a worker for
// it, say nothing, and end with its exit code. Without such a launcher the command runs as ever.
#pragma once

#include <vector>

#include "command/command.h"
#include "config/devices.h"

namespace tandem {

struct RankInfo;

int as_rank(const Command& command, int (*act)(const Command&));

// Is this process one of several that another launcher started? (`argv` is looked at for --local-rank.) Errors in the
// variables count as yes: whoever acts on it says them.
bool one_of_several();

// One device per rank: `text` names one for all, or one for each. A text that was not given on this command line may
// name another number: it is of another machine, and `auto` is taken instead. `auto` is the GPU of each rank's local
// rank, or a CPU worker where this machine has no GPU.
std::vector<DeviceSpec> devices_of_ranks(const std::string& text, bool given_here, const Machine& machine,
                                         const RankInfo& info);

}  // namespace tandem
