// kernels/gpu/pool_kernels.cu -- CUDA twins of cpu/pool_kernels.cc.
//
// A thread has 8 channels of one place (channels last: 16 bytes of bf16) or one channel (contiguous). The images are
// the grid's second dimension, so indices inside an image are 32 bits.
#include "kernels/gpu/launch.h"
#include "kernels/gpu/typed_vectors.h"
#include "kernels/pool_kernels.h"
#include "kernels/pool_math.h"

namespace tandem::cuda {
namespace {

// One image of x or y: where kWidth channels of a place lie.
template <FloatType kType, bool kLast>
struct PoolImage {
  static constexpr int kWidth = kLast ? kVector : 1;
  int64_t first;  // of the image and the thread's first channel
  int64_t channels;
  int width, count;
  bool whole;

  __device__ __forceinline__ int64_t at(int h, int w) const {
    const int64_t place = static_cast<int64_t>(h) * width + w;
    return kLast ? first + place * channels : first + place;
  }
  __device__ __forceinline__ void load(const void* data, int h, int w, float (&x)[kWidth]) const {
    if constexpr (kLast)
      load8(data, kType, at(h, w), count, whole, x);
    else
      x[0] = load_one(data, kType, at(h, w));
  }
  __device__ __forceinline__ void store(void* data, int h, int w, const float (&x)[kWidth]) const {
    if constexpr (kLast)
      store8(data, kType, at(h, w), count, whole, x);
    else
      store_one(data, kType, at(h, w), x[0]);
  }
  __device__ __forceinline__ void load_places(const uint8_t* data, int h, int w, uint8_t (&x)[kWidth]) const {
    const uint8_t* const from = data + at(h, w);
    if (kLast && whole) {
      const uint2 eight = *reinterpret_cast<const uint2*>(from);
      __builtin_memcpy(x, &eight, kWidth);
    } else {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) x[i] = i < count ? from[i] : 0;
    }
  }
  __device__ __forceinline__ void store_places(uint8_t* data, int h, int w, const uint8_t (&x)[kWidth]) const {
    uint8_t* const to = data + at(h, w);
    if (kLast && whole) {
      uint2 eight;
      __builtin_memcpy(&eight, x, sizeof eight);
      *reinterpret_cast<uint2*>(to) = eight;
    } else {
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        if (i < count) to[i] = x[i];
    }
  }
};

// A body has: kOverInput, whether threads are places of the input or of the output; run(in, out, h, w).
template <FloatType kType, bool kLast, typename Body>
__global__ void __launch_bounds__(kThreads) each_place(const PoolShape s, bool whole, const Body body) {
  using Image = PoolImage<kType, kLast>;
  const unsigned height = static_cast<unsigned>(Body::kOverInput ? s.in_h : s.out_h);
  const unsigned width = static_cast<unsigned>(Body::kOverInput ? s.in_w : s.out_w);
  const unsigned groups = static_cast<unsigned>((s.channels + Image::kWidth - 1) / Image::kWidth);
  const unsigned items = height * width * groups, stride = gridDim.x * blockDim.x;
  for (int64_t image = blockIdx.y; image < s.images; image += gridDim.y)
    for (unsigned item = blockIdx.x * blockDim.x + threadIdx.x; item < items; item += stride) {
      // Neighbouring threads have neighbouring memory.
      const unsigned place = kLast ? item / groups : item % (height * width);
      const unsigned group = kLast ? item % groups : item / (height * width);
      const int64_t channel = static_cast<int64_t>(group) * Image::kWidth;
      const int count = static_cast<int>(min(int64_t{Image::kWidth}, s.channels - channel));
      const auto plane = [&](int rows, int columns) {
        const int64_t places = static_cast<int64_t>(rows) * columns, first = image * s.channels * places;
        return Image{kLast ? first + channel : first + channel * places, s.channels, columns, count, whole};
      };
      body.template run<Image>(s, plane(s.in_h, s.in_w), plane(s.out_h, s.out_w), static_cast<int>(place / width),
                               static_cast<int>(place % width));
    }
}

struct MaxBody {
  static constexpr bool kOverInput = false;
  const void* x;
  void* y;
  uint8_t* places;
  template <class Image>
  __device__ __forceinline__ void run(const PoolShape& s, const Image& in, const Image& out, int h, int w) const {
    constexpr int kWidth = Image::kWidth;
    float best[kWidth];
    uint8_t place[kWidth];
    max_of_window(
        s, h, w, [&](int row, int column, float(&values)[kWidth]) { in.load(x, row, column, values); }, best, place);
    out.store(y, h, w, best);
    out.store_places(places, h, w, place);
  }
};

struct MaxGradientBody {
  static constexpr bool kOverInput = true;
  const void* y_grad;
  const uint8_t* places;
  void* x_grad;
  template <class Image>
  __device__ __forceinline__ void run(const PoolShape& s, const Image& in, const Image& out, int h, int w) const {
    constexpr int kWidth = Image::kWidth;
    float sum[kWidth];
    max_gradient_at(
        s, h, w,
        [&](int row, int column, float(&gradient)[kWidth], uint8_t(&place)[kWidth]) {
          out.load(y_grad, row, column, gradient);
          out.load_places(places, row, column, place);
        },
        sum);
    in.store(x_grad, h, w, sum);
  }
};

struct MeanBody {
  static constexpr bool kOverInput = false;
  const void* x;
  void* y;
  template <class Image>
  __device__ __forceinline__ void run(const PoolShape& s, const Image& in, const Image& out, int h, int w) const {
    constexpr int kWidth = Image::kWidth;
    float mean[kWidth];
    mean_of_window(
        s, h, w, [&](int row, int column, float(&values)[kWidth]) { in.load(x, row, column, values); }, mean);
    out.store(y, h, w, mean);
  }
};

struct MeanGradientBody {
  static constexpr bool kOverInput = true;
  const void* y_grad;
  void* x_grad;
  template <class Image>
  __device__ __forceinline__ void run(const PoolShape& s, const Image& in, const Image& out, int h, int w) const {
    constexpr int kWidth = Image::kWidth;
    float sum[kWidth];
    mean_gradient_at(
        s, h, w, [&](int row, int column, float(&values)[kWidth]) { out.load(y_grad, row, column, values); }, sum);
    in.store(x_grad, h, w, sum);
  }
};

struct ImageMeanBody {
  static constexpr bool kOverInput = false;  // the output is 1 x 1
  const void* x;
  void* y;
  template <class Image>
  __device__ __forceinline__ void run(const PoolShape& s, const Image& in, const Image& out, int, int) const {
    constexpr int kWidth = Image::kWidth;
    float mean[kWidth];
    mean_of_image(
        s, [&](int place, float(&values)[kWidth]) { in.load(x, 0, place, values); }, mean);
    out.store(y, 0, 0, mean);
  }
};

struct ImageMeanGradientBody {
  static constexpr bool kOverInput = true;
  const void* y_grad;
  void* x_grad;
  template <class Image>
  __device__ __forceinline__ void run(const PoolShape& s, const Image& in, const Image& out, int h, int w) const {
    constexpr int kWidth = Image::kWidth;
    float gradient[kWidth];
    out.load(y_grad, 0, 0, gradient);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) gradient[i] = gradient[i] / static_cast<float>(s.in_h * s.in_w);
    in.store(x_grad, h, w, gradient);
  }
};

template <typename Body>
void launch_pool(const char* name, const PoolShape& s, bool aligned, const Body& body, void* stream) {
  const int64_t places = Body::kOverInput ? int64_t{s.in_h} * s.in_w : int64_t{s.out_h} * s.out_w;
  if (s.images <= 0 || s.channels <= 0 || places <= 0) return;
  const bool whole = s.channels_last && s.channels % kVector == 0 && aligned;
  const int64_t items = places * (s.channels_last ? (s.channels + kVector - 1) / kVector : s.channels);
  const dim3 grid(static_cast<unsigned>(std::min<int64_t>((items + kThreads - 1) / kThreads, 65'536)),
                  static_cast<unsigned>(std::min<int64_t>(s.images, 65'535)));
  const auto with_type = [&]<FloatType kType>() {
    if (s.channels_last)
      each_place<kType, true><<<grid, kThreads, 0, static_cast<Stream>(stream)>>>(s, whole, body);
    else
      each_place<kType, false><<<grid, kThreads, 0, static_cast<Stream>(stream)>>>(s, whole, body);
  };
  switch (s.type) {
    case FloatType::kFloat:
      with_type.template operator()<FloatType::kFloat>();
      break;
    case FloatType::kBFloat16:
      with_type.template operator()<FloatType::kBFloat16>();
      break;
    case FloatType::kHalf:
      with_type.template operator()<FloatType::kHalf>();
      break;
  }
  check_launch(name);
}

// y is [images, channels], as an output of 1 x 1 is.
PoolShape whole_image(PoolShape s) {
  s.out_h = s.out_w = 1;
  return s;
}

}  // namespace

const PoolKernels& pool_kernels() {
  static const PoolKernels kernels{
      .max =
          [](const PoolShape& s, const void* x, void* y, uint8_t* places, void* stream) {
            launch_pool("max pool", s, aligned16(x, y, places), MaxBody{x, y, places}, stream);
          },
      .max_gradient =
          [](const PoolShape& s, const void* y_grad, const uint8_t* places, void* x_grad, void* stream) {
            launch_pool("max pool gradient", s, aligned16(y_grad, places, x_grad),
                        MaxGradientBody{y_grad, places, x_grad}, stream);
          },
      .mean =
          [](const PoolShape& s, const void* x, void* y, void* stream) {
            launch_pool("mean pool", s, aligned16(x, y), MeanBody{x, y}, stream);
          },
      .mean_gradient =
          [](const PoolShape& s, const void* y_grad, void* x_grad, void* stream) {
            launch_pool("mean pool gradient", s, aligned16(y_grad, x_grad), MeanGradientBody{y_grad, x_grad}, stream);
          },
      .image_mean =
          [](const PoolShape& s, const void* x, void* y, void* stream) {
            launch_pool("image mean", whole_image(s), aligned16(x, y), ImageMeanBody{x, y}, stream);
          },
      .image_mean_gradient =
          [](const PoolShape& s, const void* y_grad, void* x_grad, void* stream) {
            launch_pool("image mean gradient", whole_image(s), aligned16(y_grad, x_grad),
                        ImageMeanGradientBody{y_grad, x_grad}, stream);
          }};
  return kernels;
}

}  // namespace tandem::cuda
