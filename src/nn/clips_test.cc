#include "nn/clips.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/errors.h"
#include "nn/test_pass.h"

namespace tandem {
namespace {

constexpr int64_t kFrames = 40, kHeight = 12, kWidth = 14;
const ClipShape kClip{.length = 5, .stride = 2};
const ClipAugment kNothing{.frame_drop = 0, .flip = 0, .shift = 0, .contrast = 0, .brightness = 0, .noise = 0};

at::Tensor random_frames() {
  at::Tensor frames = at::empty({kFrames, kHeight, kWidth}, at::kByte);
  for (int64_t i = 0; i < frames.numel(); ++i)
    frames.data_ptr<uint8_t>()[i] = static_cast<uint8_t>(random_u32(RandomKey{.seed = 4}, static_cast<uint64_t>(i)));
  return frames;
}
at::Tensor keys_of(const std::vector<RandomKey>& keys) {
  at::Tensor words = at::empty({static_cast<int64_t>(keys.size()), 3}, at::kLong);
  for (size_t i = 0; i < keys.size(); ++i)
    for (size_t w = 0; w < 3; ++w)
      words[static_cast<int64_t>(i)][static_cast<int64_t>(w)] = random_key_words(keys[i])[w];
  return words;
}
at::Tensor clip_starts(const std::vector<int64_t>& first) { return at::tensor(first, at::kLong); }

TEST(Clips, WithoutKeysAreTheFramesDividedBy255) {
  const at::Tensor frames = random_frames();
  const at::Tensor clips = make_clips(frames, clip_starts({3, 0, 31}), kClip, {}, {});
  ASSERT_EQ(clips.sizes(), at::IntArrayRef({3, 1, 5, kHeight, kWidth}));
  for (const auto& [row, first] : std::vector<std::pair<int64_t, int64_t>>{{0, 3}, {1, 0}, {2, 31}})
    for (int64_t t = 0; t < 5; ++t)
      EXPECT_TRUE(at::equal(clips[row][0][t], frames[first + 2 * t].to(at::kFloat).div(255)));
  const at::Tensor rounded = make_clips(frames, clip_starts({3, 0, 31}), kClip, {}, {}, at::kBFloat16);
  EXPECT_TRUE(at::equal(rounded, clips.to(at::kBFloat16)));
}

TEST(Clips, OfABatchsOwnFramesAreThoseOfTheWholeVideo) {
  const at::Tensor frames = random_frames();
  const std::vector<int64_t> first{7, 20, 1};
  std::vector<at::Tensor> own;
  for (const int64_t f : first) own.push_back(frames.narrow(0, f, 9));
  const at::Tensor keys = keys_of({{.seed = 1}, {.seed = 2}, {.seed = 2, .step = 3}});
  EXPECT_TRUE(same_bits(make_clips(frames, clip_starts(first), kClip, {}, keys),
                        make_clips(at::stack(own), {}, kClip, {}, keys)));
}

TEST(Clips, AreFunctionsOfTheirFramesAndKeysAlone) {
  const at::Tensor frames = random_frames();
  std::vector<RandomKey> keys;
  std::vector<int64_t> first;
  for (uint32_t i = 0; i < 6; ++i) keys.push_back({.seed = 9, .step = i, .shard = 1}), first.push_back(3 * i);
  const at::Tensor all = make_clips(frames, clip_starts(first), kClip, {.flip = 0.5f}, keys_of(keys));
  for (size_t i = 0; i < keys.size(); ++i)
    EXPECT_TRUE(same_bits(all.narrow(0, static_cast<int64_t>(i), 1),
                          make_clips(frames, clip_starts({first[i]}), kClip, {.flip = 0.5f}, keys_of({keys[i]}))));
  EXPECT_FALSE(at::equal(make_clips(frames, clip_starts({0, 0}), kClip, {}, keys_of({keys[0], keys[1]}))[0],
                         make_clips(frames, clip_starts({0, 0}), kClip, {}, keys_of({keys[0], keys[1]}))[1]));
}

// What each of them does alone, beside a plain loop over the same draws.
TEST(Clips, EachAugmentationIsWhatItsNameSays) {
  const at::Tensor frames = random_frames();
  const at::Tensor plain = make_clips(frames, clip_starts({4}), kClip, {}, {})[0][0];
  int dropped = 0, moved = 0, flipped = 0;
  for (uint32_t seed = 0; seed < 40; ++seed) {
    const RandomKey key{.seed = seed};
    const auto clip = [&](const ClipAugment& augment) {
      return make_clips(frames, clip_starts({4}), kClip, augment, keys_of({key}))[0][0];
    };
    ClipAugment drop = kNothing;
    drop.frame_drop = 0.3f;
    const at::Tensor after_drop = clip(drop);
    EXPECT_TRUE(at::equal(after_drop[0], plain[0]));
    for (int64_t t = 1; t < kClip.length; ++t) {
      const bool repeats = at::equal(after_drop[t], after_drop[t - 1]);
      EXPECT_TRUE(repeats || at::equal(after_drop[t], plain[t]));
      dropped += repeats;
    }
    ClipAugment shift = kNothing;
    shift.shift = 3;
    const at::Tensor after_shift = clip(shift);
    int fits = 0;
    for (int64_t down = -3; down <= 3; ++down)
      for (int64_t right = -3; right <= 3; ++right) {
        const at::Tensor rows = (at::arange(kHeight) - down).clamp(0, kHeight - 1);
        const at::Tensor columns = (at::arange(kWidth) - right).clamp(0, kWidth - 1);
        if (!at::equal(after_shift, plain.index_select(1, rows).index_select(2, columns))) continue;
        ++fits;
        moved += down != 0 && right != 0;
      }
    EXPECT_EQ(fits, 1) << seed;
    ClipAugment flip = kNothing;
    flip.flip = 0.5f;
    const at::Tensor after_flip = clip(flip);
    EXPECT_TRUE(at::equal(after_flip, plain) || at::equal(after_flip, plain.flip({2})));
    flipped += !at::equal(after_flip, plain);
    ClipAugment bright = kNothing;
    bright.brightness = 0.2f;
    const double brightness = 0.8 + 0.4 * random_uniform(key, 0), contrast = 0.8 + 0.4 * random_uniform(key, 1);
    EXPECT_TRUE(at::allclose(clip(bright), (plain * brightness).clamp(0, 1), 1e-5, 1e-6));
    ClipAugment sharp = kNothing;
    sharp.contrast = 0.2f;
    EXPECT_TRUE(at::allclose(clip(sharp), ((plain - 0.5) * contrast + 0.5).clamp(0, 1), 1e-5, 1e-6));
  }
  EXPECT_GT(dropped, 20);
  EXPECT_LT(dropped, 80);
  EXPECT_GT(moved, 15);
  EXPECT_GT(flipped, 8);
  EXPECT_LT(flipped, 32);
}

TEST(Clips, NoiseHasItsDeviationAndIsAnotherInEachFrame) {
  const at::Tensor frames = at::full({3, 64, 64}, 128, at::kByte);
  ClipAugment noise = kNothing;
  noise.noise = 0.02f;
  const at::Tensor clip = make_clips(frames, clip_starts({0}), {.length = 3}, noise, keys_of({{.seed = 5}}))[0][0];
  EXPECT_NEAR((clip - 128.0 / 255).std().item<double>(), 0.02, 5e-4);
  EXPECT_NEAR((clip - 128.0 / 255).mean().item<double>(), 0, 5e-4);
  EXPECT_NEAR((clip[0] - clip[1]).std().item<double>(), 0.02 * std::sqrt(2.0), 1e-3);
}

TEST(Clips, RefuseWhatIsNoFramesAndWhatLeavesThem) {
  const at::Tensor frames = random_frames();
  const at::Tensor key = keys_of({{.seed = 1}});
  EXPECT_THROW(make_clips(frames.to(at::kFloat), clip_starts({0}), kClip, {}, {}), ConfigError);
  EXPECT_THROW(make_clips(frames[0], clip_starts({0}), kClip, {}, {}), ConfigError);
  EXPECT_THROW(make_clips(frames, {}, kClip, {}, {}), ConfigError);
  EXPECT_THROW(make_clips(frames, clip_starts({0, 1}), kClip, {}, key), ConfigError);
  EXPECT_THROW(make_clips(frames, clip_starts({0}), kClip, {.frame_drop = 1}, key), ConfigError);
  EXPECT_THROW(make_clips(frames, clip_starts({0}), {.length = 0}, {}, {}), ConfigError);
  EXPECT_THROW(make_clips(frames, clip_starts({-1}), kClip, {}, {}), ConfigError);
  EXPECT_NO_THROW(make_clips(frames, clip_starts({31}), kClip, {}, {}));
  EXPECT_THROW(make_clips(frames, clip_starts({32}), kClip, {}, {}), ConfigError);
  EXPECT_THROW(make_clips(frames.view({2, 20, kHeight, kWidth}), {}, {.length = 21}, {}, {}), ConfigError);
  EXPECT_THROW(make_clips(frames, clip_starts({0}), kClip, {}, {}, at::kDouble), std::logic_error);
}

}  // namespace
}  // namespace tandem
