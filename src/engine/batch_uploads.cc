#include "engine/batch_uploads.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace tandem {

BatchUploads::BatchUploads(Device& device, std::unique_ptr<CopyStream> stream, int micro_batches, size_t bytes)
    : device_(device),
      stream_(std::move(stream)),
      bytes_(bytes),
      all_bytes_(static_cast<size_t>(micro_batches) * bytes),
      fixed_(static_cast<std::byte*>(device.allocate(all_bytes_))) {
  device_.zero(fixed_, all_bytes_);
  try {
    add_landing();  // now, and not while a step runs
  } catch (...) {
    device_.release(fixed_);
    throw;
  }
}

BatchUploads::~BatchUploads() {
  stream_->wait();  // uploads read host memory and write to the landing buffers
  for (const Landing& landing : landings_) device_.release(landing.memory);
  device_.release(fixed_);
}

void BatchUploads::add_landing() {
  landings_.reserve(landings_.size() + 1);
  landings_.push_back({.memory = static_cast<std::byte*>(device_.allocate(all_bytes_))});
}

// The one that has some of the copy's micro-batches already; else one whose batches have gone on to the fixed address.
size_t BatchUploads::landing_of(int copy) {
  const auto index_of = [&](int wanted) {
    return static_cast<size_t>(std::ranges::find(landings_, wanted, &Landing::copy) - landings_.begin());
  };
  size_t index = index_of(copy);
  if (index == landings_.size()) index = index_of(-1);
  if (index == landings_.size()) add_landing();
  landings_[index].copy = copy;
  return index;
}

void BatchUploads::put(int copy, int micro_batch, size_t offset, const void* host, size_t bytes,
                       std::shared_ptr<const void> holds) {
  let_go();
  const size_t index = landing_of(copy);
  Landing& landing = landings_[index];
  landing.held.push_back(std::move(holds));
  stream_->upload(landing.memory + offset_of(micro_batch) + offset, host, bytes);
  stream_->record(static_cast<int>(index));
  if (at_fixed_ == copy) at_fixed_ = -1;
}

void BatchUploads::queue_up(int copy) {
  let_go();
  const auto landing = std::ranges::find(landings_, copy, &Landing::copy);
  if (landing == landings_.end()) {
    if (at_fixed_ != copy) throw std::logic_error("no batches were put for this copy");
    return;  // the same step again
  }
  stream_->work_waits_for(static_cast<int>(landing - landings_.begin()));
  device_.copy(fixed_, landing->memory, all_bytes_);
  stream_->uploads_wait_for_work();  // the landing buffer may be written to once that copy is done
  landing->copy = -1;
  at_fixed_ = copy;
}

void BatchUploads::let_go() {
  for (size_t index = 0; index < landings_.size(); ++index)
    if (Landing& landing = landings_[index]; !landing.held.empty() && stream_->done(static_cast<int>(index)))
      landing.held.clear();
}

}  // namespace tandem
