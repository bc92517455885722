#include "hardware/cuda_links.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/clock.h"
#include "hardware/cuda_calls.h"
#include "hardware/cuda_shared_memory.h"

namespace tandem {
namespace {

using cuda_calls::Address, cuda_calls::Cuda, cuda_calls::CudaTrouble, cuda_calls::Handle, cuda_calls::Library;

// A GPU's own context with a stream and memory of its own.
class Place {
 public:
  Place(const Cuda& cuda, int device, int64_t bytes, int buffers = 1) : cuda_(cuda), device_(device) {
    cuda_.call("cuDevicePrimaryCtxRetain", &context_, device_);
    enter();
    cuda_.call("cuStreamCreate", &stream_, 1u);  // one that waits for no other
    for (Handle* event : {&begin_, &end_}) cuda_.call("cuEventCreate", event, 0u);
    for (int i = 0; i < buffers; ++i) {
      Address memory = 0;
      cuda_.call("cuMemAlloc_v2", &memory, static_cast<size_t>(bytes));
      memory_.push_back(memory);
    }
  }
  ~Place() {
    cuda_.try_call("cuCtxSetCurrent", context_);
    for (const Address memory : memory_) cuda_.try_call("cuMemFree_v2", memory);
    for (const Handle event : {begin_, end_})
      if (event) cuda_.try_call("cuEventDestroy_v2", event);
    if (stream_) cuda_.try_call("cuStreamDestroy_v2", stream_);
    if (context_) cuda_.try_call("cuDevicePrimaryCtxRelease_v2", device_);
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  void enter() const { cuda_.call("cuCtxSetCurrent", context_); }
  Handle context() const { return context_; }
  Handle stream() const { return stream_; }
  Address memory(int i = 0) const { return memory_[static_cast<size_t>(i)]; }

  // Seconds of what `queue` puts into the stream, by the GPU's own clock: the least of a few.
  template <class Queue>
  double seconds_of(Queue queue) const {
    double least = 1e30;
    for (int round = 0; round < 4; ++round) {  // the first warms up
      cuda_.call("cuEventRecord", begin_, stream_);
      queue();
      cuda_.call("cuEventRecord", end_, stream_);
      cuda_.call("cuStreamSynchronize", stream_);
      float ms = 0;
      cuda_.call("cuEventElapsedTime", &ms, begin_, end_);
      if (round > 0) least = std::min(least, static_cast<double>(ms) / 1000);
    }
    return std::max(least, 1e-9);
  }

 private:
  const Cuda& cuda_;
  int device_;
  Handle context_ = nullptr, stream_ = nullptr, begin_ = nullptr, end_ = nullptr;
  std::vector<Address> memory_;
};

// Pinned memory of the host.
class Pinned {
 public:
  Pinned(const Cuda& cuda, int64_t bytes) : cuda_(cuda) {
    cuda_.call("cuMemHostAlloc", &at_, static_cast<size_t>(bytes), 1u);  // for all contexts
  }
  ~Pinned() { cuda_.try_call("cuMemFreeHost", at_); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  Handle at() const { return at_; }

 private:
  const Cuda& cuda_;
  Handle at_ = nullptr;
};

double gb_per_s(int64_t bytes, double seconds) { return static_cast<double>(bytes) / seconds / 1e9; }

HostLink measure_host(const Cuda& cuda, int device, int64_t bytes) {
  const Place gpu(cuda, device, bytes);
  const Pinned host(cuda, bytes);
  const auto size = static_cast<size_t>(bytes);
  HostLink link{.device = device};
  link.up_gb_per_s = gb_per_s(bytes, gpu.seconds_of([&] {
    cuda.call("cuMemcpyHtoDAsync_v2", gpu.memory(), static_cast<const void*>(host.at()), size, gpu.stream());
  }));
  link.down_gb_per_s = gb_per_s(
      bytes, gpu.seconds_of([&] { cuda.call("cuMemcpyDtoHAsync_v2", host.at(), gpu.memory(), size, gpu.stream()); }));
  return link;
}

// Much as workers do it that sum by kernels (reduce/peer_link.h), but within one process: memory of one GPU, passed by
// its descriptor, mapped for the other one, which reads what its owner wrote.
std::string why_unmapped(const Cuda& cuda, const Place& source, const Place& target, int from, int to) {
  constexpr size_t kNumbers = 1024, kBytes = kNumbers * sizeof(unsigned);
  try {
    std::vector<unsigned> written(kNumbers), found(kNumbers);
    for (size_t i = 0; i < kNumbers; ++i)
      written[i] = static_cast<unsigned>(i * 2654435761u + static_cast<unsigned>(from));
    source.enter();
    const auto memory = CudaSharedMemory::create(kBytes, from);
    cuda.call("cuMemcpyHtoDAsync_v2", reinterpret_cast<Address>(memory->data()),
              static_cast<const void*>(written.data()), kBytes, source.stream());
    cuda.call("cuStreamSynchronize", source.stream());
    target.enter();
    const auto seen = CudaSharedMemory::adopt(dup(memory->fd()), kBytes, to);
    cuda.call("cuMemcpyDtoHAsync_v2", static_cast<void*>(found.data()), reinterpret_cast<Address>(seen->data()), kBytes,
              target.stream());
    cuda.call("cuStreamSynchronize", target.stream());
    return found == written ? "" : "what is read there is not what its owner wrote";
  } catch (const std::runtime_error& refusal) {
    return refusal.what();
  }
}

PeerLink measure_peer(const Cuda& cuda, int from, int to, int64_t bytes) {
  const Place source(cuda, from, bytes), target(cuda, to, bytes);
  int direct = 0;
  cuda.call("cuDeviceCanAccessPeer", &direct, to, from);
  if (direct) {
    for (const auto& [here, there] : {std::pair{&source, &target}, std::pair{&target, &source}}) {
      here->enter();
      const int code = cuda.try_call("cuCtxEnablePeerAccess", there->context(), 0u);
      constexpr int kAlready = 704;
      if (code != 0 && code != kAlready) direct = 0;
    }
  }
  source.enter();
  const double seconds = source.seconds_of([&] {
    cuda.call("cuMemcpyPeerAsync", target.memory(), target.context(), source.memory(), source.context(),
              static_cast<size_t>(bytes), source.stream());
  });
  return {from, to, direct != 0, gb_per_s(bytes, seconds), why_unmapped(cuda, source, target, from, to)};
}

// The few functions of NCCL that a sum takes. Its numbers for a type and an operation have never changed.
class Nccl {
 public:
  explicit Nccl(const std::string& library) : library_(library.c_str()) {}
  template <class... A>
  void call(const char* name, A... arguments) const {
    const int code = library_.find<int(A...)>(name)(arguments...);
    if (code == 0) return;
    const char* const words = library_.find<const char*(int)>("ncclGetErrorString")(code);
    throw CudaTrouble(std::string(name) + ": " + (words ? words : "NCCL error " + std::to_string(code)));
  }

 private:
  Library library_;
};
constexpr int kNcclFloat = 7, kNcclAdd = 0;

}  // namespace

MeasuredLinks measure_gpu_links(int64_t bytes) {
  MeasuredLinks links;
  try {
    const Cuda cuda;
    for (int i = 0; i < cuda.devices(); ++i) links.host.push_back(measure_host(cuda, i, bytes));
    for (int from = 0; from < cuda.devices(); ++from)
      for (int to = 0; to < cuda.devices(); ++to)
        if (from != to) links.peers.push_back(measure_peer(cuda, from, to, bytes));
  } catch (const CudaTrouble& trouble) {
    links.trouble = trouble.what();
  }
  return links;
}

NcclSum measure_nccl_sum(const std::string& library, const std::vector<int>& devices, int64_t most_bytes) {
  NcclSum sum;
  try {
    const Cuda cuda;
    const Nccl nccl(library);
    const auto ranks = devices.size();
    std::vector<std::unique_ptr<Place>> gpus;
    for (const int device : devices) gpus.push_back(std::make_unique<Place>(cuda, device, most_bytes, 2));
    struct Communicators {
      const Nccl& nccl;
      std::vector<Handle> of;
      ~Communicators() {
        try {
          for (const Handle one : of) nccl.call("ncclCommDestroy", one);
        } catch (const CudaTrouble&) {
        }
      }
    } all{nccl, {}};
    std::vector<Handle> made(ranks);
    nccl.call("ncclCommInitAll", made.data(), static_cast<int>(ranks), devices.data());
    all.of = made;
    const auto reduce = [&](int64_t count) {
      nccl.call("ncclGroupStart");
      for (size_t r = 0; r < ranks; ++r)
        nccl.call("ncclAllReduce", reinterpret_cast<const void*>(gpus[r]->memory(0)),
                  reinterpret_cast<void*>(gpus[r]->memory(1)), static_cast<size_t>(count), kNcclFloat, kNcclAdd,
                  all.of[r], gpus[r]->stream());
      nccl.call("ncclGroupEnd");
    };
    const auto wait = [&] {
      for (const auto& gpu : gpus) {
        gpu->enter();
        cuda.call("cuStreamSynchronize", gpu->stream());
      }
    };
    for (size_t r = 0; r < ranks; ++r) {  // rank r has r + 1 everywhere
      const float value = static_cast<float>(r + 1);
      unsigned bits = 0;
      static_assert(sizeof bits == sizeof value);
      __builtin_memcpy(&bits, &value, sizeof bits);
      gpus[r]->enter();
      cuda.call("cuMemsetD32_v2", gpus[r]->memory(0), bits, static_cast<size_t>(most_bytes / 4));
    }
    wait();
    const float want = static_cast<float>(ranks * (ranks + 1) / 2);
    for (int64_t bytes = 8; bytes <= most_bytes; bytes *= 4) {
      const int64_t count = bytes / 4;
      const int rounds = static_cast<int>(std::clamp<int64_t>((64 << 20) / bytes, 5, 20));
      for (int i = 0; i < 2; ++i) reduce(count);
      wait();
      const double start = monotonic_seconds();
      for (int i = 0; i < rounds; ++i) reduce(count);
      wait();
      const double seconds = (monotonic_seconds() - start) / rounds;
      BandwidthRow row{.bytes = bytes, .count = count, .time_us = seconds * 1e6};
      row.algbw_gb_per_s = gb_per_s(bytes, seconds);
      row.busbw_gb_per_s = row.algbw_gb_per_s * 2 * static_cast<double>(ranks - 1) / static_cast<double>(ranks);
      std::vector<float> result(static_cast<size_t>(count));
      for (const auto& gpu : gpus) {
        gpu->enter();
        cuda.call("cuMemcpyDtoH_v2", static_cast<void*>(result.data()), gpu->memory(1), static_cast<size_t>(bytes));
        row.wrong += std::count_if(result.begin(), result.end(), [&](float x) { return x != want; });
      }
      sum.rows.push_back(row);
    }
  } catch (const CudaTrouble& trouble) {
    sum.trouble = trouble.what();
  }
  return sum;
}

}  // namespace tandem
