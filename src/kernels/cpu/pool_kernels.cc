#include "kernels/pool_kernels.h"

#include <algorithm>

#include "kernels/cpu/cpu_dispatch.h"
#include "kernels/float_bits.h"
#include "kernels/pool_math.h"

namespace tandem {
namespace {

// kWidth channels of a place of an image [height, width]: channels last, or one channel of contiguous memory.
template <FloatType kType, int kWidth, bool kLast>
struct PoolPlane {
  int64_t first, channels;  // first: of the image and its first channel
  int width;
  int count;  // of the kWidth channels, those that exist

  TANDEM_HD int64_t at(int h, int w) const {
    const int64_t place = static_cast<int64_t>(h) * width + w;
    return kLast ? first + place * channels : first + place;
  }
  TANDEM_HD void load(const void* data, int h, int w, float (&values)[kWidth]) const {
    const int64_t from = at(h, w);
    for (int i = 0; i < kWidth; ++i) values[i] = i < count ? load_float(data, kType, from + i) : 0.0f;
  }
  TANDEM_HD void store(void* data, int h, int w, const float (&values)[kWidth]) const {
    const int64_t to = at(h, w);
    for (int i = 0; i < count; ++i) store_float(data, kType, to + i, values[i]);
  }
};

// body(plane of the input, plane of the output) for every image and group of channels.
template <FloatType kType, typename Body>
void for_each_plane(const PoolShape& s, const Body& body) {
  const auto run = [&]<int kWidth, bool kLast>() {
    run_variant(best_cpu_variant(), [&]() TANDEM_INLINE_LAMBDA {
      for (int64_t image = 0; image < s.images; ++image)
        for (int64_t channel = 0; channel < s.channels; channel += kWidth) {
          const int count = static_cast<int>(std::min<int64_t>(kWidth, s.channels - channel));
          const auto plane = [&](int height, int width) TANDEM_INLINE_LAMBDA {
            const int64_t places = static_cast<int64_t>(height) * width, first = image * s.channels * places;
            return PoolPlane<kType, kWidth, kLast>{kLast ? first + channel : first + channel * places, s.channels,
                                                   width, count};
          };
          body(plane(s.in_h, s.in_w), plane(s.out_h, s.out_w));
        }
    });
  };
  if (s.channels_last)
    run.template operator()<16, true>();
  else
    run.template operator()<1, false>();
}

template <typename Plane>
inline constexpr int kWidthOf = 0;
template <FloatType kType, int kWidth, bool kLast>
inline constexpr int kWidthOf<PoolPlane<kType, kWidth, kLast>> = kWidth;

template <FloatType kType>
void pool_max(const PoolShape& s, const void* x, void* y, uint8_t* places) {
  for_each_plane<kType>(s, [=]<typename Plane>(const Plane& in, const Plane& out) TANDEM_INLINE_LAMBDA {
    constexpr int kWidth = kWidthOf<Plane>;
    float best[kWidth];
    uint8_t place[kWidth];
    const auto load = [&](int h, int w, float(&values)[kWidth]) TANDEM_INLINE_LAMBDA { in.load(x, h, w, values); };
    for (int h = 0; h < s.out_h; ++h)
      for (int w = 0; w < s.out_w; ++w) {
        max_of_window(s, h, w, load, best, place);
        out.store(y, h, w, best);
        std::copy_n(place, out.count, places + out.at(h, w));
      }
  });
}

template <FloatType kType>
void pool_max_gradient(const PoolShape& s, const void* y_grad, const uint8_t* places, void* x_grad) {
  for_each_plane<kType>(s, [=]<typename Plane>(const Plane& in, const Plane& out) TANDEM_INLINE_LAMBDA {
    constexpr int kWidth = kWidthOf<Plane>;
    float sum[kWidth];
    const auto load = [&](int h, int w, float(&gradient)[kWidth], uint8_t(&place)[kWidth]) TANDEM_INLINE_LAMBDA {
      out.load(y_grad, h, w, gradient);
      for (int i = 0; i < kWidth; ++i) place[i] = i < out.count ? places[out.at(h, w) + i] : 0;
    };
    for (int h = 0; h < s.in_h; ++h)
      for (int w = 0; w < s.in_w; ++w) {
        max_gradient_at(s, h, w, load, sum);
        in.store(x_grad, h, w, sum);
      }
  });
}

template <FloatType kType>
void pool_mean(const PoolShape& s, const void* x, void* y) {
  for_each_plane<kType>(s, [=]<typename Plane>(const Plane& in, const Plane& out) TANDEM_INLINE_LAMBDA {
    constexpr int kWidth = kWidthOf<Plane>;
    float mean[kWidth];
    const auto load = [&](int h, int w, float(&values)[kWidth]) TANDEM_INLINE_LAMBDA { in.load(x, h, w, values); };
    for (int h = 0; h < s.out_h; ++h)
      for (int w = 0; w < s.out_w; ++w) {
        mean_of_window(s, h, w, load, mean);
        out.store(y, h, w, mean);
      }
  });
}

template <FloatType kType>
void pool_mean_gradient(const PoolShape& s, const void* y_grad, void* x_grad) {
  for_each_plane<kType>(s, [=]<typename Plane>(const Plane& in, const Plane& out) TANDEM_INLINE_LAMBDA {
    constexpr int kWidth = kWidthOf<Plane>;
    float sum[kWidth];
    const auto load = [&](int h, int w, float(&values)[kWidth])
                          TANDEM_INLINE_LAMBDA { out.load(y_grad, h, w, values); };
    for (int h = 0; h < s.in_h; ++h)
      for (int w = 0; w < s.in_w; ++w) {
        mean_gradient_at(s, h, w, load, sum);
        in.store(x_grad, h, w, sum);
      }
  });
}

// y is [images, channels], as an output of 1 x 1 is.
PoolShape whole_image(PoolShape s) {
  s.out_h = s.out_w = 1;
  return s;
}

template <FloatType kType>
void pool_image_mean(const PoolShape& s, const void* x, void* y) {
  for_each_plane<kType>(s, [=]<typename Plane>(const Plane& in, const Plane& out) TANDEM_INLINE_LAMBDA {
    constexpr int kWidth = kWidthOf<Plane>;
    float mean[kWidth];
    mean_of_image(
        s, [&](int place, float(&values)[kWidth]) TANDEM_INLINE_LAMBDA { in.load(x, 0, place, values); }, mean);
    out.store(y, 0, 0, mean);
  });
}

template <FloatType kType>
void pool_image_mean_gradient(const PoolShape& s, const void* y_grad, void* x_grad) {
  for_each_plane<kType>(s, [=]<typename Plane>(const Plane& in, const Plane& out) TANDEM_INLINE_LAMBDA {
    constexpr int kWidth = kWidthOf<Plane>;
    float gradient[kWidth];
    out.load(y_grad, 0, 0, gradient);
    for (int i = 0; i < kWidth; ++i) gradient[i] = gradient[i] / static_cast<float>(s.in_h * s.in_w);
    for (int place = 0; place < s.in_h * s.in_w; ++place) in.store(x_grad, 0, place, gradient);
  });
}

// call.operator()<type>()
template <typename Call>
void with_pool_type(FloatType type, const Call& call) {
  switch (type) {
    case FloatType::kFloat:
      return call.template operator()<FloatType::kFloat>();
    case FloatType::kBFloat16:
      return call.template operator()<FloatType::kBFloat16>();
    case FloatType::kHalf:
      return call.template operator()<FloatType::kHalf>();
  }
}

}  // namespace

const PoolKernels& PoolKernels::cpu() {
  static const PoolKernels kernels{
      .max = [](const PoolShape& s, const void* x, void* y, uint8_t* places,
                void*) { with_pool_type(s.type, [&]<FloatType kType>() { pool_max<kType>(s, x, y, places); }); },
      .max_gradient =
          [](const PoolShape& s, const void* y_grad, const uint8_t* places, void* x_grad, void*) {
            with_pool_type(s.type, [&]<FloatType kType>() { pool_max_gradient<kType>(s, y_grad, places, x_grad); });
          },
      .mean = [](const PoolShape& s, const void* x, void* y,
                 void*) { with_pool_type(s.type, [&]<FloatType kType>() { pool_mean<kType>(s, x, y); }); },
      .mean_gradient =
          [](const PoolShape& s, const void* y_grad, void* x_grad, void*) {
            with_pool_type(s.type, [&]<FloatType kType>() { pool_mean_gradient<kType>(s, y_grad, x_grad); });
          },
      .image_mean =
          [](const PoolShape& s, const void* x, void* y, void*) {
            with_pool_type(s.type, [&]<FloatType kType>() { pool_image_mean<kType>(whole_image(s), x, y); });
          },
      .image_mean_gradient =
          [](const PoolShape& s, const void* y_grad, void* x_grad, void*) {
            with_pool_type(s.type,
                           [&]<FloatType kType>() { pool_image_mean_gradient<kType>(whole_image(s), y_grad, x_grad); });
          }};
  return kernels;
}

}  // namespace tandem
