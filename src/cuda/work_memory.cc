#include "cuda/work_memory.h"

#include <ATen/cuda/CUDAGraph.h>

namespace tandem::cuda {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

}  // namespace

// To begin makes the pool, with one user, and to end leaves that: it is this object.
WorkMemory::Pool::Pool() : id(at::cuda::graph_pool_handle()) {
  allocator::beginAllocateToPool(0, id, [](cudaStream_t) { return false; });
  allocator::endAllocateToPool(0, id);
}

// Blocks that are in use stay; the rest goes with the next emptyCache().
WorkMemory::Pool::~Pool() { allocator::releasePool(0, id); }

// The GPU goes with the process, when libtorch's allocator may be gone already: the pool is left to the driver.
WorkMemory::~WorkMemory() { (void)new std::shared_ptr<Pool>(std::move(pool_)); }

// What eager runs have left in the plain pool is given back first: from here on they would hold it for nothing.
void WorkMemory::make_pool() {
  if (pool_) return;
  allocator::emptyCache();
  pool_ = std::make_shared<Pool>();
}

void WorkMemory::enter() {
  if (depth_ == 0) {
    make_pool();
    allocator::beginAllocateToPool(0, pool_->id, is_ours_);
  }
  ++depth_;
}

void WorkMemory::leave() {
  if (--depth_ > 0) return;
  allocator::endAllocateToPool(0, pool_->id);
  allocator::releasePool(0, pool_->id);  // every begin counts as one more user
}

std::shared_ptr<const void> WorkMemory::pool() {
  make_pool();
  return pool_;
}

void WorkMemory::trim() {
  if (depth_ > 0) return;
  if (pool_.use_count() == 1) pool_.reset();
  allocator::emptyCache();
}

}  // namespace tandem::cuda
