// engine/copy_stream.h -- uploads to a GPU beside its work, on a stream of their own.
//
// Uploads run in the order in which they are queued, and wait for the work only where that is asked for:
//     upload(...); record(slot);      host memory must stay as it is until done(slot)
//     work_waits_for(slot);           what is queued on the GPU from here on finds the uploads in place
//     ... work that reads them ...
//     uploads_wait_for_work();        later uploads may overwrite what that work reads
// One thread uses a stream.
#pragma once

#include <cstddef>
#include <memory>

#include "kernels/device.h"

namespace tandem {

class CopyStream {
 public:
  virtual ~CopyStream() = default;
  virtual void upload(void* dst, const void* host, size_t bytes) = 0;
  virtual void record(int slot) = 0;  // from now on the slot, a small number, stands for all uploads so far
  virtual bool done(int slot) = 0;    // what the slot stands for is in place
  virtual void work_waits_for(int slot) = 0;
  virtual void uploads_wait_for_work() = 0;  // for all that is queued on the GPU until now
  virtual void wait() noexcept = 0;          // until all uploads are done, or the GPU has failed
};

// Copies at the call, by the device's own queue: for one that has no other.
class CopyAtOnce : public CopyStream {
 public:
  explicit CopyAtOnce(Device& device) : device_(device) {}
  void upload(void* dst, const void* host, size_t bytes) override { device_.from_host(dst, host, bytes); }
  void record(int) override {}
  bool done(int) override { return true; }
  void work_waits_for(int) override {}
  void uploads_wait_for_work() override {}
  void wait() noexcept override {}

 private:
  Device& device_;
};

}  // namespace tandem
