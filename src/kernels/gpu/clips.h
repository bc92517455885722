// kernels/gpu/clips.h -- CUDA twin of cpu/clip_kernels.cc.
//
// A thread makes 8 neighbouring pixels of a clip: one 16-byte store of bf16 or fp16. Their noise is two Philox blocks
// and eight inverse normals in double, which is what the time goes to; the row's own draws cost it two blocks more. The
// bytes are read one by one: a shift makes them unaligned, and the 256 bytes of a warp are a few sectors of L1 or L2.
#pragma once

#include "kernels/clip_math.h"
#include "kernels/gpu/intrinsics.h"
#include "kernels/gpu/kernels.h"
#include "kernels/gpu/typed_vectors.h"

namespace tandem::cuda {

template <FloatType kType>
__global__ void __launch_bounds__(kThreads) make_clip_pixels(const ClipCall call, bool whole) {
  const unsigned width = static_cast<unsigned>(call.width), pixels = static_cast<unsigned>(call.height) * width;
  const unsigned elements = static_cast<unsigned>(call.length) * pixels;
  const unsigned groups = (elements + kVector - 1) / kVector, stride = gridDim.x * blockDim.x;
  for (int64_t row = blockIdx.y; row < call.rows; row += gridDim.y) {
    const int64_t first = clip_first_frame(call, row), to = row * elements;
    const bool augments = call.keys != nullptr;
    RandomKey key;
    ClipDraws draws;
    if (augments) {
      key = call.keys[row];
      draws = clip_draws(call.augment, key);
    }
    for (unsigned group = blockIdx.x * blockDim.x + threadIdx.x; group < groups; group += stride) {
      const unsigned begin = group * kVector;
      const int count = elements - begin < kVector ? static_cast<int>(elements - begin) : kVector;
      float noise[kVector] = {}, value[kVector] = {};
      if (augments && call.augment.noise > 0) {
#pragma unroll
        for (int half = 0; half < kVector; half += 4) {
          const PhiloxBlock block = random_block(key, (kClipNoise + begin) / 4 + static_cast<unsigned>(half) / 4);
#pragma unroll
          for (int i = 0; i < 4; ++i) noise[half + i] = 0.0f + call.augment.noise * normal_from_u32(block.word[i]);
        }
      }
      int t = static_cast<int>(begin / pixels), shown = 0;
      const unsigned inside = begin % pixels;
      int h = static_cast<int>(inside / width), w = static_cast<int>(inside % width);
      const uint8_t* from = nullptr;
      const auto enter_row = [&](bool enters_frame) {
        if (enters_frame) shown = augments ? clip_source_frame(call.augment, key, t) : t;
        from = call.frames + (first + int64_t{shown} * call.stride) * pixels +
               int64_t{clip_source_row(draws, h, call.height)} * call.width;
      };
      if (first >= 0) enter_row(true);
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        if (i >= count) continue;
        if (first < 0) {
          value[i] = float_of_bits(0x7FC00000u);
          continue;
        }
        const uint8_t pixel = from[clip_source_column(draws, w, call.width)];
        value[i] = augments ? clip_augmented(pixel, draws, noise[i]) : clip_value(pixel);
        if (++w < call.width || i + 1 >= count) continue;
        w = 0;
        const bool enters_frame = ++h == call.height;
        if (enters_frame) h = 0, ++t;
        enter_row(enters_frame);
      }
      store8(call.out.data, kType, to + begin, count, whole, value);
    }
  }
}

inline void launch_clips(const ClipCall& call, void* stream_pointer) {
  const int64_t elements = int64_t{call.length} * call.height * call.width;
  if (call.rows <= 0 || elements <= 0) return;
  const bool whole = elements % kVector == 0 && reinterpret_cast<uintptr_t>(call.out.data) % 16 == 0;
  const int64_t blocks = (elements + kVector * kThreads - 1) / (kVector * kThreads);
  const dim3 grid(static_cast<unsigned>(blocks < 65'536 ? blocks : 65'536),
                  static_cast<unsigned>(call.rows < 65'535 ? call.rows : 65'535));
  [[maybe_unused]] const auto stream = static_cast<Stream>(stream_pointer);
  switch (call.out.type) {
    case FloatType::kFloat:
      TANDEM_LAUNCH("clips", make_clip_pixels<FloatType::kFloat>, grid, dim3(kThreads), stream, call, whole);
      break;
    case FloatType::kBFloat16:
      TANDEM_LAUNCH("clips", make_clip_pixels<FloatType::kBFloat16>, grid, dim3(kThreads), stream, call, whole);
      break;
    case FloatType::kHalf:
      TANDEM_LAUNCH("clips", make_clip_pixels<FloatType::kHalf>, grid, dim3(kThreads), stream, call, whole);
      break;
  }
}

}  // namespace tandem::cuda
