#include "kernels/clip_kernels.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/clip_math.h"
#include "kernels/cpu/cpu_dispatch.h"
#include "kernels/cpu/random_fill.h"

namespace tandem {
namespace {

void store_run(const ClipCall& call, int64_t to, const float* values, int64_t count) {
  if (call.out.type == FloatType::kFloat)
    std::copy_n(values, count, static_cast<float*>(call.out.data) + to);
  else
    for (int64_t i = 0; i < count; ++i) store_float(call.out.data, call.out.type, to + i, values[i]);
}

// One image of an augmented clip: `from` is its source, `noise` [height, width] becomes the result.
void augment_image(const ClipCall& call, const ClipDraws& draws, const uint8_t* from, float* noise) {
  run_variant(best_cpu_variant(), [&]() TANDEM_INLINE_LAMBDA {
    for (int h = 0; h < call.height; ++h) {
      const uint8_t* const row = from + int64_t{clip_source_row(draws, h, call.height)} * call.width;
      float* const to = noise + int64_t{h} * call.width;
      for (int w = 0; w < call.width; ++w)
        to[w] = clip_augmented(row[clip_source_column(draws, w, call.width)], draws, to[w]);
    }
  });
}

void make_clip_rows(const ClipCall& call, void*) {
  const int64_t pixels = int64_t{call.height} * call.width;
  std::vector<float> image(static_cast<size_t>(pixels));
  for (int64_t row = 0; row < call.rows; ++row) {
    const int64_t first = clip_first_frame(call, row);
    const ClipDraws draws = call.keys ? clip_draws(call.augment, call.keys[row]) : ClipDraws{};
    for (int t = 0; t < call.length; ++t) {
      const int64_t to = (row * call.length + t) * pixels;
      if (first < 0) {
        std::fill(image.begin(), image.end(), std::numeric_limits<float>::quiet_NaN());
      } else {
        const int shown = call.keys ? clip_source_frame(call.augment, call.keys[row], t) : t;
        const uint8_t* const from = call.frames + (first + int64_t{shown} * call.stride) * pixels;
        if (!call.keys) {
          for (int64_t i = 0; i < pixels; ++i) image[static_cast<size_t>(i)] = clip_value(from[i]);
        } else {
          if (call.augment.noise > 0)
            fill_normal(image.data(), pixels, call.keys[row], kClipNoise + static_cast<uint64_t>(t * pixels), 0,
                        call.augment.noise);
          else
            std::fill(image.begin(), image.end(), 0.0f);
          augment_image(call, draws, from, image.data());
        }
      }
      store_run(call, to, image.data(), pixels);
    }
  }
}

}  // namespace

const ClipKernels& ClipKernels::cpu() {
  static const ClipKernels kernels{make_clip_rows};
  return kernels;
}

}  // namespace tandem
