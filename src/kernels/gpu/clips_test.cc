// Clips, emulated on the CPU, beside their CPU twin.
#include "kernels/gpu/clips.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace tandem::cuda {
namespace {

struct ClipCase {
  int64_t rows;
  int length, stride, height, width;
  FloatType type;
  bool augments;
};

TEST(GpuClips, AreThoseOfTheCpuToTheBit) {
  const std::vector<ClipCase> cases{{3, 5, 1, 16, 24, FloatType::kFloat, true},
                                    {2, 4, 2, 7, 9, FloatType::kFloat, true},  // 8 pixels run over rows and frames
                                    {2, 3, 1, 1, 3, FloatType::kBFloat16, true},
                                    {3, 3, 1, 8, 12, FloatType::kHalf, true},
                                    {2, 3, 1, 8, 12, FloatType::kBFloat16, false}};
  for (const ClipCase& c : cases) {
    constexpr int64_t kFrames = 12;
    std::vector<uint8_t> frames(static_cast<size_t>(kFrames * c.height * c.width));
    for (size_t i = 0; i < frames.size(); ++i) frames[i] = static_cast<uint8_t>(random_u32(RandomKey{.seed = 3}, i));
    std::vector<RandomKey> keys;
    std::vector<int64_t> first;
    for (int64_t row = 0; row < c.rows; ++row) {
      keys.push_back({.seed = 8, .step = static_cast<uint64_t>(row), .shard = 2, .site = 7});
      first.push_back(row == 2 ? kFrames - 1 : row);  // the third one leaves the frames: NaN
    }
    const size_t bytes = static_cast<size_t>(c.rows * c.length * c.height * c.width * bytes_of(c.type));
    std::vector<char> ours(bytes, 1), expected(bytes, 2);
    ClipCall call{.frames = frames.data(),
                  .frame_count = kFrames,
                  .first_frame = first.data(),
                  .rows = c.rows,
                  .length = c.length,
                  .stride = c.stride,
                  .height = c.height,
                  .width = c.width,
                  .augment = {.frame_drop = 0.3f, .flip = 0.5f, .shift = 2},
                  .keys = c.augments ? keys.data() : nullptr,
                  .out = {ours.data(), c.type}};
    launch_clips(call, nullptr);
    call.out.data = expected.data();
    ClipKernels::cpu().make(call, nullptr);
    EXPECT_EQ(std::memcmp(ours.data(), expected.data(), bytes), 0)
        << c.height << " x " << c.width << (c.augments ? ", augmented" : "");
    if (c.rows == 3) {
      EXPECT_TRUE(std::isnan(load_float(ours.data(), c.type, c.rows * c.length * c.height * c.width - 1)));
    }
  }
}

}  // namespace
}  // namespace tandem::cuda
