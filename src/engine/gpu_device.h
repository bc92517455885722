// engine/gpu_device.h -- the GPU that this process drives, if it drives one.
//
// What needs libtorch's CUDA libraries is a library of its own, libtandem_cuda.so, loaded here: a worker on the CPU
// starts in a quarter of a second without them, and a machine without a GPU need not have them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "config/run_settings.h"
#include "engine/copy_stream.h"
#include "kernels/device.h"
#include "kernels/gpu/kernel_tables.h"

namespace tandem {

// Work that was captured once. What it allocates lies in the work memory, which it keeps; results go elsewhere.
class CudaGraph {
 public:
  virtual ~CudaGraph() = default;
  virtual void replay() = 0;  // queues all of it by one launch
};

// Of the GPU's memory: what libtorch and Device::allocate() hold of it, with what the driver and the libraries took for
// this process.
struct GpuMemory {
  uint64_t now_bytes = 0, peak_bytes = 0;  // 0: not known
};

class GpuDevice {
 public:
  virtual ~GpuDevice() = default;
  virtual Device& device() = 0;
  virtual void prepare_thread() = 0;  // in every thread that computes: its work goes to the GPU's one stream
  // Parallel streams: after fork(n), work queued in branch 0..n-1 waits for what came before; after join(n), work waits
  // for all of them. A thread is in no branch at first; branch(-1) leaves it.
  virtual void fork(int branches) = 0;
  virtual void branch(int number) = 0;
  virtual void join(int branches) = 0;
  // Work memory: one pool for captures and for eager runs of what is captured, so that neither holds what the other
  // could use. Nothing that work() allocates may be used once it has returned: the next run or replay overwrites it. So
  // the first run of a phase, in which recipes and libraries make what they keep, does not belong in here; trim() after
  // it gives its memory back. capture() enters by itself; calls may be nested.
  virtual void in_work_memory(const std::function<void()>& work) { work(); }
  virtual void trim() = 0;  // gives back memory that nothing uses, destroyed graphs' too; waits for the GPU
  // What the work of the calls between had allocated at most, beside what stays: libtorch's memory on the GPU.
  virtual void begin_peak() = 0;
  virtual size_t peak_bytes() const = 0;
  virtual size_t free_bytes() const = 0;  // within the fraction that may be used
  virtual GpuMemory memory() const { return {}; }
  // Captures what `work` queues, without running it; null with the reason if it can't be captured.
  virtual std::unique_ptr<CudaGraph> capture(const std::function<void()>& work, std::string* refused) = 0;
  // Kernels of a recipe or an environment, a struct of function pointers (kernels/gpu/kernel_tables.h); null: none.
  template <class Kernels>
  const Kernels* kernels() const {
    return kernel_tables().template find<Kernels>();
  }
  virtual const KernelTables& kernel_tables() const = 0;
  virtual void hang() = 0;             // for tests: queues work that never ends
  virtual void* stream() = 0;          // the CUDA stream where everything is queued
  virtual void* current_stream() = 0;  // that, or the branch's
  // Uploads beside that work. The default copies at once.
  virtual std::unique_ptr<CopyStream> copy_stream() { return std::make_unique<CopyAtOnce>(device()); }
  virtual bool idle() = 0;               // all of it is done, or the GPU has failed: the next call tells
  virtual std::string kind_parts() = 0;  // JSON: what the GPU's bits depend on
  virtual std::string name() const = 0;  // "NVIDIA H200"
};

// Takes the first visible GPU (the launcher shows a worker only its own) and makes it this process's device(). Of its
// memory, libtorch will take no more than `memory_fraction`. Throws Error with the reason if there is none.
void open_gpu(double memory_fraction);
GpuDevice* gpu();                              // null on the CPU
void use_gpu(std::unique_ptr<GpuDevice> gpu);  // for tests: an emulated one; null: none again

// Takes the device that the launcher gave this process (TANDEM_DEVICE: "cuda" or nothing), and sets what TF32 may be
// used for. Throws ConfigError if the device can't do what the settings ask for.
void take_device(const RecipeSettings& settings);

}  // namespace tandem
