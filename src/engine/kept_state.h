// engine/kept_state.h -- a copy of the replicated state, to roll back to.
//
// A small one lies beside the state. A larger one lies in pinned host memory: on a GPU it would double weights and
// optimizer. Its copies are queued like other work, so the state may change right after keep().
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/job_state.h"

namespace tandem {

class KeptState {
 public:
  static int64_t most_on_device();  // kMostKeptOnGpu; no limit on a CPU, whose memory is the host's already

  explicit KeptState(int64_t most_on_device) : most_on_device_(most_on_device) {}

  // The same tensors in every call, in the same order.
  void keep(const std::vector<NamedTensor>& now);
  void restore(const std::vector<NamedTensor>& now);

  bool empty() const { return tensors_.empty(); }
  bool on_host() const { return host_ != nullptr; }
  // The copies, by the names of their originals, once they are made; they may be written to, until the next call.
  const std::vector<NamedTensor>& tensors();
  // Hashes of the copies as they were kept, in that order, where hashing them again would be slow; else empty.
  const std::vector<uint64_t>& hashes() const { return hashes_; }
  void forget_hashes() { hashes_.clear(); }  // the copies were written to
  // For the user, once: the system refused to pin it.
  std::string take_note() { return std::exchange(note_, ""); }

 private:
  void lay_out(const std::vector<NamedTensor>& now, const std::vector<at::Tensor>& stretches);
  std::vector<at::Tensor> on_host(const std::vector<at::Tensor>& stretches);

  int64_t most_on_device_;
  std::shared_ptr<std::byte> host_;
  std::vector<at::Tensor> stretches_;  // the memory of the copies, as few long tensors
  std::vector<NamedTensor> tensors_;
  std::vector<uint64_t> hashes_;
  bool queued_ = false;  // copies that may not have been made yet
  std::string note_;
};

}  // namespace tandem
