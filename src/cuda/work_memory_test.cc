// libtorch's own allocator on a CUDA runtime that is not there: its calls are the functions below, and the GPU's memory
// is the host's.
#include "cuda/work_memory.h"

#include <ATen/cuda/CUDAGraph.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <vector>

namespace {

constexpr size_t kAll = size_t{8} << 30, kSegment = size_t{2} << 20;
std::map<void*, size_t> segments;  // what cudaMalloc() has given out
size_t held_bytes = 0, most_held = 0;

}  // namespace

extern "C" {
cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* facts, int) {
  std::memset(facts, 0, sizeof(*facts));
  facts->totalGlobalMem = kAll;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = kAll;
  *free = kAll - held_bytes;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, size_t bytes) {
  *memory = std::aligned_alloc(kSegment, (bytes + kSegment - 1) / kSegment * kSegment);
  segments[*memory] = bytes;
  most_held = std::max(most_held, held_bytes += bytes);
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  held_bytes -= segments.at(memory);
  segments.erase(memory);
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  return *status = cudaStreamCaptureStatusNone, cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return *least = 0, *greatest = -5, cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }
}

namespace at::cuda {

MempoolId_t graph_pool_handle() {
  static c10::CaptureId_t number = 0;
  return {0, ++number};
}

}  // namespace at::cuda

namespace tandem::cuda {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

cudaStream_t stream(uintptr_t number) { return reinterpret_cast<cudaStream_t>(number); }

constexpr size_t kMegabyte = size_t{1} << 20;
// Of a forward and a backward pass: large ones of several sizes, freed in the opposite order.
constexpr size_t kActivations[] = {40 * kMegabyte, 24 * kMegabyte, 96 * kMegabyte, 12 * kMegabyte, 3 * kMegabyte};

class WorkMemoryTest : public ::testing::Test {
 protected:
  WorkMemoryTest() {
    allocator::init(1);
    allocator::emptyCache();
    before = most_held = held_bytes;
  }
  ~WorkMemoryTest() override {
    for (void* one : kept) allocator::raw_delete(one);
    memory.trim();
    EXPECT_EQ(held_bytes, before) << "nothing is left";
  }
  void* allocate(size_t bytes, uintptr_t on = 16) { return allocator::raw_alloc_with_stream(bytes, stream(on)); }
  std::vector<void*> run() {
    std::vector<void*> blocks;
    for (const size_t bytes : kActivations) blocks.push_back(allocate(bytes));
    for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) allocator::raw_delete(*block);
    return blocks;
  }
  std::vector<void*> run_inside() {
    const WorkMemory::Inside here(memory);
    return run();
  }
  // What is on the GPU, beside what was there before.
  static size_t held(size_t before) { return held_bytes - before; }

  WorkMemory memory{[](cudaStream_t s) { return s == stream(16) || s == stream(32); }};
  std::vector<void*> kept;
  size_t before = 0;
};

TEST_F(WorkMemoryTest, EagerRunsAndCapturesTakeTheSameBlocksOneAfterTheOther) {
  const std::vector<void*> first = run_inside();
  const size_t once = held(before);
  const std::shared_ptr<const void> graph = memory.pool();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(run_inside(), first);
  EXPECT_EQ(held(before), once);
}

TEST_F(WorkMemoryTest, TheFirstRunsMemoryIsGivenBackBeforeThePoolTakesAsMuch) {
  run();
  const size_t once = held(before);
  run_inside();
  EXPECT_EQ(held(before), once);
  EXPECT_EQ(most_held - before, once) << "nor was it ever held twice";
}

TEST_F(WorkMemoryTest, WhatTheFirstRunKeepsIsOutsideOfThePool) {
  run();
  kept = {allocate(33 * kMegabyte), allocate(1000)};
  const std::vector<void*> blocks = run_inside();
  for (void* const block : blocks) EXPECT_EQ(std::ranges::count(kept, block), 0);
  const std::shared_ptr<const void> graph = memory.pool();
  kept.push_back(allocate(40 * kMegabyte));
  EXPECT_EQ(std::ranges::count(blocks, kept.back()), 0) << "nor is plain memory taken from a graph's";
}

TEST_F(WorkMemoryTest, AGraphsMemoryStaysAsLongAsItAndGoesWithTheNextTrim) {
  const std::vector<void*> blocks = run_inside();
  const size_t once = held(before);
  std::shared_ptr<const void> graph = memory.pool();
  memory.trim();
  EXPECT_EQ(held(before), once);
  EXPECT_EQ(run_inside(), blocks);
  graph.reset();
  memory.trim();
  EXPECT_EQ(held(before), 0u);
  run_inside();
  EXPECT_EQ(held(before), once) << "a pool is made anew";
}

TEST_F(WorkMemoryTest, WhatIsInUseStaysWhenThePoolGoes) {
  {
    const WorkMemory::Inside here(memory);
    kept = {allocate(50 * kMegabyte)};
    std::memset(kept[0], 7, 50 * kMegabyte);
  }
  memory.trim();
  run();
  EXPECT_EQ(*static_cast<char*>(kept[0]), 7);
  EXPECT_GE(held(before), 50 * kMegabyte);
}

TEST_F(WorkMemoryTest, OneMayEnterTwiceAndOtherStreamsAreServedElsewhere) {
  const std::vector<void*> blocks = run_inside();
  const WorkMemory::Inside outer(memory);
  {
    const WorkMemory::Inside inner(memory);
    EXPECT_EQ(run(), blocks);
  }
  EXPECT_EQ(run(), blocks);
  kept = {allocate(40 * kMegabyte, /*on=*/48)};
  EXPECT_EQ(std::ranges::count(blocks, kept[0]), 0);
}

}  // namespace
}  // namespace tandem::cuda
