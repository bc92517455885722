// engine/emulated_gpu.h -- a GPU whose memory is the host's, for tests of what drives one.
//
// A captured graph is the work itself, called again at every replay. As on a GPU, host values are those of the capture.
// At the capture the host's part must run once and the device's must not: `untouched` runs it and puts back what it
// changed.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "engine/gpu_device.h"

namespace tandem {

class EmulatedGpu : public GpuDevice {
 public:
  using Untouched = std::function<void(const std::function<void()>& work)>;
  // Without `untouched` nothing can be captured.
  explicit EmulatedGpu(Untouched untouched = nullptr) : untouched_(std::move(untouched)) {}
  void capture_by(Untouched untouched) { untouched_ = std::move(untouched); }

  std::atomic<int> captures = 0, replays = 0;

  Device& device() override { return cpu_device(); }
  void prepare_thread() override {}
  void fork(int) override {}
  void branch(int) override {}
  void join(int) override {}
  void trim() override {}
  void begin_peak() override {}
  size_t peak_bytes() const override { return 0; }
  size_t free_bytes() const override { return size_t{1} << 40; }
  std::unique_ptr<CudaGraph> capture(const std::function<void()>& work, std::string* refused) override {
    if (!untouched_) {
      *refused = "nothing is captured here";
      return nullptr;
    }
    try {
      untouched_(work);
    } catch (const std::exception& error) {
      *refused = error.what();
      return nullptr;
    }
    ++captures;
    return std::make_unique<Replay>(work, replays);
  }
  const KernelTables& kernel_tables() const override {
    static const KernelTables none;
    return none;
  }
  void hang() override {}
  void* stream() override { return nullptr; }
  void* current_stream() override { return nullptr; }
  bool idle() override { return true; }
  std::string kind_parts() override { return "{}"; }
  std::string name() const override { return "emulated"; }

 private:
  class Replay : public CudaGraph {
   public:
    Replay(std::function<void()> work, std::atomic<int>& replays) : work_(std::move(work)), replays_(replays) {}
    void replay() override {
      ++replays_;
      work_();
    }

   private:
    std::function<void()> work_;
    std::atomic<int>& replays_;
  };
  Untouched untouched_;
};

}  // namespace tandem
