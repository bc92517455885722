#include "engine/kept_state.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <cstdlib>
#include <limits>
#include <new>

#include "config/gpu_memory.h"
#include "kernels/device.h"

namespace tandem {
namespace {

// Where a tensor that follows `before` in the same memory begins, counted from there; padding may lie between them. -1:
// it does not follow.
int64_t begins_after(const at::Tensor& before, const at::Tensor& t) {
  const int64_t at = t.storage_offset() - before.storage_offset();
  const bool follows = t.is_alias_of(before) && t.dtype() == before.dtype() && before.is_contiguous() &&
                       t.is_contiguous() && at >= before.numel() && at < before.numel() + JobState::kAlignFloats;
  return follows ? at : -1;
}

// All tensors as few long ones: copies of many small ones cost a launch each, and a tensor made for each of them costs
// as much.
std::vector<at::Tensor> in_stretches(const std::vector<NamedTensor>& tensors) {
  std::vector<at::Tensor> stretches;
  for (size_t i = 0; i < tensors.size();) {
    const at::Tensor& first = tensors[i].tensor;
    int64_t length = first.numel();
    size_t next = i + 1;
    for (; next < tensors.size(); ++next) {
      const at::Tensor &before = tensors[next - 1].tensor, &t = tensors[next].tensor;
      const int64_t at = begins_after(before, t);
      if (at < 0) break;
      length += at - before.numel() + t.numel();
    }
    if (next == i + 1)
      stretches.push_back(first.is_contiguous() ? first.view({-1}) : first);
    else
      stretches.push_back(first.as_strided({length}, {1}));
    i = next;
  }
  return stretches;
}

// Refused: copies are slower and no less right.
std::shared_ptr<std::byte> pinned_memory(size_t bytes, bool& refused) {
  constexpr size_t kHugePage = size_t{2} << 20;  // whole ones: pinned in a fraction of the time
  const size_t all = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(kHugePage, all));
  if (!memory) throw std::bad_alloc();
  ::madvise(memory, all, MADV_HUGEPAGE);
  cpu_device().zero(memory, all);
  refused = !device().pin(memory, all);
  return {memory, [](std::byte* used) {
            device().unpin(used);
            std::free(used);
          }};
}

size_t padded_bytes(const at::Tensor& t) { return (t.nbytes() + 63) / 64 * 64; }

// Whether queued copies of its bytes reach it: it is all of its memory, and on the device that copies.
bool is_plain(const at::Tensor& t) { return t.is_non_overlapping_and_dense() && t.is_cuda() == device().is_cuda(); }

Device& home(const at::Tensor& t) { return t.is_cuda() ? device() : cpu_device(); }

}  // namespace

int64_t KeptState::most_on_device() {
  return device().is_cuda() ? kMostKeptOnGpu : std::numeric_limits<int64_t>::max();
}

std::vector<at::Tensor> KeptState::on_host(const std::vector<at::Tensor>& stretches) {
  size_t bytes = 0;
  for (const at::Tensor& t : stretches) bytes += padded_bytes(t);
  bool refused = false;
  host_ = pinned_memory(bytes, refused);
  if (refused)
    note_ = fmt::format(
        "the system refused to pin {:.1f} MB of memory for the state to roll back to: copies of it, one every "
        "nan.rollback_every steps, are slower, the result is the same (raise the limit on locked memory, `ulimit -l`)",
        static_cast<double>(bytes) * 1e-6);
  std::vector<at::Tensor> copies;
  std::byte* at = host_.get();
  for (const at::Tensor& t : stretches) {
    const at::Tensor shape = at::empty_like(t, at::TensorOptions(at::kMeta));  // dense, in the same order in memory
    copies.push_back(at::from_blob(
        at, shape.sizes(), shape.strides(), [memory = host_](void*) {}, at::TensorOptions(t.scalar_type())));
    at += padded_bytes(t);
  }
  return copies;
}

void KeptState::lay_out(const std::vector<NamedTensor>& now, const std::vector<at::Tensor>& stretches) {
  int64_t bytes = 0;
  for (const at::Tensor& t : stretches) bytes += static_cast<int64_t>(t.nbytes());
  if (bytes > most_on_device_)
    stretches_ = on_host(stretches);
  else
    for (const at::Tensor& t : stretches) stretches_.push_back(at::zeros_like(t));
  size_t stretch = 0;
  for (size_t i = 0; i < now.size(); ++i) {
    const at::Tensor& t = now[i].tensor;
    const int64_t at = i > 0 ? begins_after(now[i - 1].tensor, t) : -1;
    if (at < 0) ++stretch;
    at::Tensor there = stretches_[stretch - 1];
    if (t.is_contiguous()) {
      const int64_t begin = at < 0 ? 0 : tensors_[i - 1].tensor.storage_offset() + at;
      there = there.as_strided(t.sizes(), t.strides(), begin);
    }
    tensors_.push_back({now[i].name, there, now[i].like_parameters});
  }
}

void KeptState::keep(const std::vector<NamedTensor>& now) {
  const std::vector<at::Tensor> stretches = in_stretches(now);
  if (empty()) lay_out(now, stretches);
  for (size_t i = 0; i < stretches.size(); ++i) {
    if (on_host() && is_plain(stretches[i]))
      device().queue_to_host(stretches_[i].data_ptr(), stretches[i].data_ptr(), stretches[i].nbytes());
    else
      stretches_[i].copy_(stretches[i]);
  }
  queued_ = on_host();
  hashes_.clear();
  if (!on_host()) return;
  for (const NamedTensor& t : now)  // here and now: later it would be the host that hashes them
    hashes_.push_back(home(t.tensor).state_hash(t.tensor.data_ptr(), static_cast<int64_t>(t.tensor.nbytes())));
}

void KeptState::restore(const std::vector<NamedTensor>& now) {
  const std::vector<at::Tensor> stretches = in_stretches(now);
  for (size_t i = 0; i < stretches.size(); ++i) {
    if (on_host() && is_plain(stretches[i]))
      device().queue_from_host(stretches[i].data_ptr(), stretches_[i].data_ptr(), stretches[i].nbytes());
    else
      stretches[i].copy_(stretches_[i]);
  }
  queued_ = on_host();
}

const std::vector<NamedTensor>& KeptState::tensors() {
  if (queued_) device().wait();
  queued_ = false;
  return tensors_;
}

}  // namespace tandem
