// reduce/nccl_comm.h -- one communicator of NCCL, never waited for without an end.
//
// It is formed in the background; result() tells how far it is. What may hang inside NCCL (abort, shrink) runs in a
// thread of its own and has a limit. Past it the GPU can't be had back: `stuck` is told why and ends this process, and
// the launcher puts another in its place.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "reduce/nccl_library.h"

namespace tandem {

struct NcclGpu {               // what NCCL needs of a GPU, beside its Device
  void* stream = nullptr;      // where all its work is queued
  std::function<bool()> idle;  // all of it is done; true as well if the GPU has failed: the next call to it tells
};

struct NcclTimes {
  double form_seconds = 60;   // then it counts as refused
  double abort_seconds = 8;   // then the process ends: before it is taken for frozen
  double blame_seconds = 10;  // from an error of NCCL to the news of a death that explains it; then NCCL is to blame
};

class NcclComm {
 public:
  NcclComm(std::shared_ptr<const NcclLibrary> library, NcclGpu gpu, const NcclTimes& times,
           std::function<void(const std::string&)> stuck);
  ~NcclComm();  // aborts
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  void form(const NcclId& id, int members, int me);
  // Stops what is under way and forms anew without these ranks; the others keep their order.
  void shrink(std::vector<int> without);
  // NCCL's code: kNcclInProgress while it forms, or until a group's work is queued; kNcclSuccess; else it has failed.
  int result();
  void abort();  // the GPU's stream is free afterwards

  NcclLibrary::Comm handle() const { return handle_; }

 private:
  bool under_watch(const char* what, const std::function<void()>& call);  // false: the GPU is still busy
  void stop(const std::function<void()>& call);

  std::shared_ptr<const NcclLibrary> library_;
  NcclGpu gpu_;
  NcclTimes times_;
  std::function<void(const std::string&)> stuck_;
  int refused_ = kNcclSuccess;  // what the call that forms it said at once
  NcclLibrary::Comm handle_ = nullptr;
  std::unique_ptr<NcclLibrary::Comm> child_;  // NCCL writes it when the smaller one is formed; handle_ is its parent
};

}  // namespace tandem
