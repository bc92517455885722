#include "reduce/gpu_combine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <set>

#include "reduce/exact_sum.h"

namespace tandem {
namespace {

// The CPU's memory, counted.
class CountedDevice : public Device {
 public:
  bool is_cuda() const override { return false; }
  void* allocate(size_t bytes) override {
    void* const memory = cpu_.allocate(bytes);
    given_.insert(memory);
    most_ = std::max(most_, given_.size());
    return memory;
  }
  void release(void* memory) noexcept override {
    given_.erase(memory);
    cpu_.release(memory);
  }
  size_t most() const { return most_; }
  void zero(void* memory, size_t bytes) override { cpu_.zero(memory, bytes); }
  void fill_ones(void* memory, size_t bytes) override { cpu_.fill_ones(memory, bytes); }
  void copy(void* dst, const void* src, size_t bytes) override { cpu_.copy(dst, src, bytes); }
  void to_host(void* host, const void* src, size_t bytes) override { cpu_.to_host(host, src, bytes); }
  void from_host(void* dst, const void* host, size_t bytes) override { cpu_.from_host(dst, host, bytes); }
  void queue_to_host(void* host, const void* src, size_t bytes) override { cpu_.queue_to_host(host, src, bytes); }
  void queue_from_host(void* dst, const void* host, size_t bytes) override { cpu_.queue_from_host(dst, host, bytes); }
  bool pin(void*, size_t) override { return true; }
  void unpin(void*) noexcept override {}
  void wait() override {}
  void add_in_order(float* out, const float* const* inputs, int count, int64_t n) override {
    cpu_.add_in_order(out, inputs, count, n);
  }
  // None of the rest is asked of a sum.
  void soft_update(float*, const float*, float, int64_t) override { FAIL(); }
  void fill_dropout_mask(float*, int64_t, const RandomSource&, uint64_t, double) override { FAIL(); }
  void decide_update(UpdateDecision*, const UpdateParams*, const float*, int64_t, const float*, int64_t, const int64_t*,
                     int) override {
    FAIL();
  }
  void decide_groups(UpdateDecision*, UpdateDecision*, const UpdateParams*, const float*, int64_t, int, const int64_t*,
                     int) override {
    FAIL();
  }
  void adam_update(float*, const float*, float*, float*, int64_t, const AdamParams*, const UpdateDecision*) override {
    FAIL();
  }
  void adam_update(float*, const float*, float*, float*, const UpdateSegment*, int, int64_t, const UpdateParams*,
                   const UpdateDecision*, const TargetUpdate&) override {
    FAIL();
  }
  void sgd_update(float*, const float*, float*, int64_t, const SgdParams*, const UpdateDecision*) override { FAIL(); }
  void soft_update(float*, const float*, float, int64_t, const UpdateDecision*) override { FAIL(); }
  void find_nonfinite(int64_t*, const float*, int64_t) override { FAIL(); }
  double sum_of_squares(const float*, int64_t) override { return NAN; }
  int64_t first_nonfinite(const float*, int64_t) override { return -1; }
  uint64_t state_hash(const void*, int64_t) override { return 0; }

 private:
  Device& cpu_ = cpu_device();
  std::set<void*> given_;
  size_t most_ = 0;
};

constexpr int kShards = 8, kFloats = 33;

std::vector<std::vector<float>> rows_of(std::mt19937& random) {
  std::vector<std::vector<float>> rows(kShards, std::vector<float>(kFloats));
  for (auto& row : rows)
    for (float& x : row) x = std::ldexp(static_cast<float>(random()) - 2e9f, static_cast<int>(random() % 40) - 20);
  return rows;
}

std::vector<float> total_of(const std::vector<std::vector<float>>& rows) {
  const SumTree tree(kShards);
  ExactSum<float> sum(tree, kFloats);
  for (int s = 0; s < kShards; ++s) sum.add(s, rows[s]);
  return {sum.total().begin(), sum.total().end()};
}

// One of several workers, beside the others' sums; every shard's vector comes in the same memory.
std::vector<std::vector<float>> totals_of_one(CountedDevice& device, ShardRange mine, int steps) {
  std::vector<ShardRange> ranges;
  for (const ShardRange range : {ShardRange{0, mine.first}, mine, ShardRange{mine.last, kShards}})
    if (range.size() > 0) ranges.push_back(range);
  auto local = std::make_unique<LocalCombine>(kShards, ranges);
  LocalCombine& all = *local;
  GpuCombine combine(kShards, mine, std::move(local), device);
  std::mt19937 random(5);
  std::vector<std::vector<float>> totals;
  for (int step = 0; step < steps; ++step) {
    const std::vector<std::vector<float>> rows = rows_of(random);
    combine.begin({.floats = kFloats});
    std::vector<float> contribution(kFloats);
    for (int s = 0; s < kShards; ++s) {
      if (s >= mine.first && s < mine.last) {
        contribution = rows[s];
        combine.add_floats(s, contribution, /*stays=*/s + 1 == mine.last);
      } else {
        all.add_floats(s, rows[s], false);
      }
    }
    const Total total = combine.finish();
    totals.emplace_back(total.floats.begin(), total.floats.end());
    EXPECT_EQ(totals.back(), total_of(rows)) << "step " << step;
  }
  return totals;
}

TEST(GpuCombine, EightShardsOneAfterTheOtherNeedOneVectorForEachLevelOfTheTree) {
  CountedDevice device;
  GpuCombine combine(kShards, {0, kShards}, std::make_unique<LocalCombine>(kShards, std::vector{ShardRange{0, 8}}),
                     device);
  std::mt19937 random(3);
  std::vector<float> contribution(kFloats);
  for (int step = 0; step < 3; ++step) {
    const std::vector<std::vector<float>> rows = rows_of(random);
    combine.begin({.floats = kFloats});
    for (int s = 0; s < kShards; ++s) {
      contribution = rows[s];
      combine.add_floats(s, contribution, /*stays=*/s + 1 == kShards);
    }
    for (int s = 0; s < kShards; ++s) combine.add(s, {});
    const Total total = combine.finish();
    EXPECT_EQ(std::vector<float>(total.floats.begin(), total.floats.end()), total_of(rows));
  }
  EXPECT_EQ(device.most(), 3u);
}

TEST(GpuCombine, TheTotalOfSeveralWorkersTakesTheMemoryOfAnEarlierPartialSum) {
  CountedDevice device;
  totals_of_one(device, {0, 4}, 3);
  EXPECT_EQ(device.most(), 2u) << "those of the two levels below it";
}

// A graph writes them where it found them, whatever the sum thinks of that memory.
TEST(GpuCombine, TheTotalIsWrittenToNoPartialSumThatAGraphHasMade) {
  CountedDevice device;
  auto local = std::make_unique<LocalCombine>(kShards, std::vector{ShardRange{0, 4}, ShardRange{4, 8}});
  LocalCombine& all = *local;
  GpuCombine combine(kShards, {0, 4}, std::move(local), device);
  std::mt19937 random(7);
  const std::vector<std::vector<float>> rows = rows_of(random);
  Partials captured;
  for (int step = 0; step < 3; ++step) {
    combine.begin({.floats = kFloats});
    if (step == 0)
      for (int s = 0; s < 4; ++s) combine.add_floats(s, rows[s], false);
    else
      combine.set_partial_sums(captured);
    captured = combine.partial_sums();
    const std::vector<float> before(captured[0].values.begin(), captured[0].values.end());
    for (int s = 4; s < kShards; ++s) all.add_floats(s, rows[s], false);
    const Total total = combine.finish();
    EXPECT_EQ(std::vector<float>(total.floats.begin(), total.floats.end()), total_of(rows));
    EXPECT_EQ(std::vector<float>(captured[0].values.begin(), captured[0].values.end()), before) << "step " << step;
  }
}

TEST(GpuCombine, WhereAllMemoryHoldsPartialSumsTheTotalHasItsOwn) {
  for (const ShardRange mine : {ShardRange{0, 1}, ShardRange{7, 8}, ShardRange{0, 2}, ShardRange{1, 4}}) {
    CountedDevice device;
    totals_of_one(device, mine, 3);
    EXPECT_LE(device.most(), 3u);
  }
}

}  // namespace
}  // namespace tandem
