#include "engine/loader.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

namespace tandem {
namespace {

Batch numbered(const LoadKey& key) {
  Batch batch;
  batch.tensors = {at::full({2}, static_cast<double>(key.step * 100 + key.shard * 10 + key.micro_batch))};
  return batch;
}

LoadKey next(const LoadKey& key) {
  return key.shard < 2 ? LoadKey{key.step, key.shard + 1, 0} : LoadKey{key.step + 1, 0, 0};
}

TEST(Loader, AnyNumberOfThreadsGivesTheBatchThatWasAskedFor) {
  for (int threads : {0, 1, 3})
    for (int prefetch : {1, 5}) {
      Loader loader(numbered, next, threads, prefetch);
      for (int step = 0; step < 20; ++step)
        for (int shard = 0; shard < 3; ++shard)
          ASSERT_EQ(loader.get({step, shard, 0}).tensors[0][1].item<float>(), step * 100 + shard * 10);
      ASSERT_EQ(loader.get({7, 2, 0}).tensors[0][0].item<float>(), 720) << "a jump back is served too";
    }
}

TEST(Loader, BatchesAheadTakeNoMoreMemoryThanTheyMay) {
  const auto place_of = [](const LoadKey& key) { return static_cast<int>(key.step * 3 + key.shard); };
  std::atomic<int> farthest = 0;
  const size_t batch_bytes = 2 * sizeof(float) + 1;
  Loader loader(
      [&](const LoadKey& key) {
        int so_far = farthest;
        while (so_far < place_of(key) && !farthest.compare_exchange_weak(so_far, place_of(key))) {
        }
        return numbered(key);
      },
      next, 3, /*prefetch=*/50, /*most_bytes=*/4 * batch_bytes);
  for (LoadKey key; key.step < 20; key = next(key)) {
    loader.get(key);
    ASSERT_LE(farthest, place_of(key) + 4);
  }
}

TEST(Loader, AnErrorInAThreadReachesTheOneWhoAsked) {
  Loader loader(
      [](const LoadKey& key) -> Batch {
        if (key.step == 1) throw std::runtime_error("sample 12 is damaged");
        return numbered(key);
      },
      next, 2, 4);
  for (int shard = 0; shard < 3; ++shard) loader.get({0, shard, 0});
  try {
    loader.get({1, 0, 0});
    FAIL();
  } catch (const std::runtime_error& e) {
    EXPECT_STREQ(e.what(), "sample 12 is damaged");
  }
}

TEST(Loader, PreparesBatchesAheadOfTheAsking) {
  std::atomic<int> made{0};
  std::mutex mutex;
  std::condition_variable changed;
  Loader loader(
      [&](const LoadKey& key) {
        std::lock_guard lock(mutex);
        ++made;
        changed.notify_all();
        return numbered(key);
      },
      next, 1, 3);
  loader.get({0, 0, 0});
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return made >= 4; });  // hangs, and so fails by the test's time limit, if none is made ahead
}

}  // namespace
}  // namespace tandem
