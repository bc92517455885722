#include "engine/mirror.h"

#include <cstring>
#include <new>

namespace tandem {

Mirror::Mirror(size_t bytes, int host_copies) : bytes_(bytes), gpu_(nullptr), host_(nullptr, &std::free) {
  constexpr size_t kPage = 4096;
  const size_t all = (bytes * static_cast<size_t>(host_copies) + kPage) / kPage * kPage;
  host_.reset(static_cast<std::byte*>(std::aligned_alloc(kPage, all)));
  if (!host_) throw std::bad_alloc();
  std::memset(host_.get(), 0, all);
  gpu_ = static_cast<std::byte*>(device().allocate(bytes));
  device().pin(host_.get(), all);
}

Mirror::~Mirror() {
  device().unpin(host_.get());
  device().release(gpu_);
}

}  // namespace tandem
