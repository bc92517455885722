// reduce/nccl_transport.h -- the exact sum between GPUs over NCCL, by grouped sends and receives, for any members.
//
// Every member owns one slice of the vector. Each sends the owners their slices of its partial sums; the owner adds
// them on its GPU, in tree order; then the slices go to everybody. Same tree, same bits as through host memory, so a
// run may change between the two at any combine, and does: while a communicator forms in the background (after the
// start, after a death) the phases go through host memory. All members take the same steps, by the words that are sent
// with those phases (direct_gpu_link.h):
//
//   ask      can everybody? who holds a communicator to go on with?  -> form a new one, with the first member's id
//   forming  has it formed everywhere?  -> carry         one refused, or it took too long -> host memory, for good
//
// A member's death is seen by the Watch, as everywhere: nothing waits for NCCL without asking it. The next generation
// then shrinks the communicator, if all its members were in it, or aborts it and forms another.
// A sum is over on all GPUs before anybody marks the combine as done, since inner's finish() comes after it: whoever
// died later has left nothing undone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "reduce/combine.h"
#include "reduce/direct_gpu_link.h"
#include "reduce/nccl_comm.h"
#include "reduce/watch.h"

namespace tandem {

class NcclTransport {
 public:
  struct Options {
    std::string library;    // its path; empty: the one that libtorch brings
    bool required = false;  // a refusal ends the run
    bool waits = false;     // a phase waits up to a second for the communicator before it goes through host memory
    NcclTimes times;
    std::function<void(const std::string&)> note;   // for the user: that host memory is used, and why
    std::function<void(const std::string&)> log;    // for this worker's log
    std::function<void(const std::string&)> stuck;  // see nccl_comm.h
  };
  NcclTransport(Device& device, NcclGpu gpu, Options options);
  ~NcclTransport();  // after the combines that it made

  // Ends what the generation before left under way, and keeps what can be kept of its communicator. First of all when
  // the members change: until then any call that waits for the GPU may wait for a peer that is gone.
  void take_over(const LinkMembers& members);
  void drop();  // ends what is under way, for good; before anything is destroyed that waits for the GPU
  // The combine of one generation; `inner` was made for the same members.
  std::unique_ptr<Combine> combine(const LinkMembers& members, std::unique_ptr<Combine> inner, const Watch& watch);
  // For it, if there are others; null: there are none.
  std::unique_ptr<DirectGpuLink> link(const LinkMembers& members, const Watch& watch);

 private:
  friend class NcclLink;

  Device& device_;
  NcclGpu gpu_;
  Options options_;
  std::shared_ptr<const NcclLibrary> library_;
  std::string refused_;  // NCCL can't be used in this process: why
  std::string last_note_;

  std::unique_ptr<NcclComm> comm_;
  std::vector<int> ranks_;   // of comm_
  uint64_t tag_ = 0;         // which one it is, and what was done to it; 0: none that could be gone on with
  uint64_t taken_over_ = 0;  // the generation
  bool agreed_ = false, under_way_ = false;
  int64_t sums_ = 0;   // that comm_ has carried
  int fruitless_ = 0;  // communicators in a row that were agreed on and carried nothing
};

}  // namespace tandem
