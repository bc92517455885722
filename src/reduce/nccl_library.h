// reduce/nccl_library.h -- the functions of NCCL that we call, from the libnccl.so.2 that libtorch brings.
//
// Found at run time, so that nothing here needs CUDA or NCCL to build, and tests replace NCCL by a library of their own
// (tests/fake_nccl.cc). The declarations are those of nccl.h, whose binary interface does not change within version 2.
#pragma once

#include <climits>
#include <cstddef>
#include <memory>
#include <string>

namespace tandem {

struct NcclId {
  char bytes[128];
};

enum NcclResult : int { kNcclSuccess = 0, kNcclInternalError = 3, kNcclInvalidUsage = 5, kNcclInProgress = 7 };

struct NcclConfig {  // as of 2.18; NCCL reads as much of it as `size` says
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef, version = 21800;
  int blocking = 0;  // every call comes back at once, and the communicator is asked how it went
  int cga_cluster_size = INT_MIN, min_ctas = INT_MIN, max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
};

struct NcclLibrary {
  using Comm = void*;
  using Stream = void*;
  static constexpr int kFloat32 = 7, kShrinkAbort = 1;

  // `path` empty: the one that is loaded already, or the system's. Null if there is none, or an old one, and why.
  static std::shared_ptr<const NcclLibrary> open(const std::string& path, std::string* refused);

  int (*get_version)(int*);
  int (*get_unique_id)(NcclId*);
  int (*comm_init_rank_config)(Comm*, int ranks, NcclId, int rank, NcclConfig*);
  int (*comm_get_async_error)(Comm, int*);
  int (*comm_abort)(Comm);
  int (*comm_shrink)(Comm, int* without, int count, Comm*, NcclConfig*, int flags) = nullptr;  // from 2.27 on
  int (*group_start)();
  int (*group_end)();
  int (*send)(const void*, size_t count, int type, int peer, Comm, Stream);
  int (*recv)(void*, size_t count, int type, int peer, Comm, Stream);
  const char* (*get_error_string)(int);
  const char* (*get_last_error)(Comm);

  std::string version() const;              // "2.28.9"
  std::string words_for(int result) const;  // what NCCL says of a failure, on one line
};

}  // namespace tandem
