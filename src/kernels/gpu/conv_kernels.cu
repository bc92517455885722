// kernels/gpu/conv_kernels.cu -- CUDA twins of cpu/conv_kernels.cc.
#include "kernels/conv_kernels.h"
#include "kernels/gpu/launch.h"

namespace tandem::cuda {
namespace {

constexpr int kRowsPerThread = 4;

// Where an output place's window begins in the input.
struct Window {
  int64_t image_row;  // image * in_h
  int h, w;
  __device__ Window(const ConvShape& s, int64_t place) {
    const unsigned per_image = static_cast<unsigned>(s.out_h) * static_cast<unsigned>(s.out_w);
    const int64_t image = place / per_image;
    const unsigned inside = static_cast<unsigned>(place - image * per_image);
    image_row = image * s.in_h;
    h = static_cast<int>(inside / static_cast<unsigned>(s.out_w)) * s.stride_h - s.pad_h;
    w = static_cast<int>(inside % static_cast<unsigned>(s.out_w)) * s.stride_w - s.pad_w;
  }
  // The pixel's index in x; negative: padding.
  __device__ __forceinline__ int64_t pixel(const ConvShape& s, int tap_h, int tap_w) const {
    const int in_h = h + tap_h, in_w = w + tap_w;
    if (in_h < 0 || in_h >= s.in_h || in_w < 0 || in_w >= s.in_w) return -1;
    return (image_row + in_h) * s.in_w + in_w;
  }
};

// A pixel is a whole number of 16-byte vectors. A thread copies one vector of one place of the kernel for 4 rows, all
// loaded before the first is stored; neighbouring threads write neighbouring vectors.
__global__ void __launch_bounds__(kThreads)
    copy_columns(const ConvShape s, const uint4* x, int64_t first, int64_t count, uint4* columns) {
  const unsigned vectors = static_cast<unsigned>(s.channels * s.element_bytes / 16);
  const unsigned row_vectors = vectors * static_cast<unsigned>(s.kernel_h * s.kernel_w);
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t group = item / row_vectors;
  const unsigned at = static_cast<unsigned>(item - group * row_vectors), tap = at / vectors, vector = at % vectors;
  const int tap_h = static_cast<int>(tap) / s.kernel_w * s.dilation_h,
            tap_w = static_cast<int>(tap) % s.kernel_w * s.dilation_w;
  uint4 values[kRowsPerThread];
#pragma unroll
  for (int k = 0; k < kRowsPerThread; ++k) {
    const int64_t row = group * kRowsPerThread + k;
    values[k] = make_uint4(0, 0, 0, 0);
    if (row >= count) continue;
    const int64_t pixel = Window(s, first + row).pixel(s, tap_h, tap_w);
    if (pixel >= 0) values[k] = x[pixel * vectors + vector];
  }
#pragma unroll
  for (int k = 0; k < kRowsPerThread; ++k) {
    const int64_t row = group * kRowsPerThread + k;
    if (row < count) columns[row * row_vectors + at] = values[k];
  }
}

// Any number of channels: a thread gathers one 16-byte vector of a row, element by element.
template <typename Element>
__global__ void __launch_bounds__(kThreads)
    gather_columns(const ConvShape s, int row_vectors, const Element* x, int64_t first, int64_t count, uint4* columns) {
  constexpr int kElements = 16 / sizeof(Element);
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t row = item / row_vectors;
  if (row >= count) return;
  const int64_t element = (item - row * row_vectors) * kElements;
  const int64_t tap = element / s.channels, taps = static_cast<int64_t>(s.kernel_h) * s.kernel_w;
  int64_t channel = element - tap * s.channels;
  int i = static_cast<int>(tap / s.kernel_w), j = static_cast<int>(tap % s.kernel_w);
  const Window window(s, first + row);
  Element values[kElements];
  int64_t left = taps * s.channels - element;  // beyond: the zeros at the row's end
  int64_t pixel = window.pixel(s, i * s.dilation_h, j * s.dilation_w);
#pragma unroll
  for (int k = 0; k < kElements; ++k) {
    values[k] = left > 0 && pixel >= 0 ? x[pixel * s.channels + channel] : Element{0};
    --left;
    if (++channel < s.channels) continue;
    channel = 0;
    if (++j == s.kernel_w) j = 0, ++i;
    pixel = window.pixel(s, i * s.dilation_h, j * s.dilation_w);
  }
  uint4 vector;
  __builtin_memcpy(&vector, values, sizeof vector);
  columns[item] = vector;
}

template <int kWidth>
struct alignas(4 * kWidth) Numbers {
  float x[kWidth];
};

// One thread: kWidth neighbouring numbers of one shard's leaf, over all of its chunks of this call.
template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    sum_chunks(const float* chunks, int64_t first, int64_t count, int64_t per_shard, int64_t n, float* leaves) {
  using Vector = Numbers<kWidth>;
  const int64_t shard = first / per_shard + blockIdx.y;
  const int64_t begin = max(first, shard * per_shard), end = min(first + count, (shard + 1) * per_shard);
  for (int64_t i = first_item() * kWidth; i < n; i += item_stride() * kWidth) {
    Vector* const leaf = reinterpret_cast<Vector*>(leaves + shard * n + i);
    const auto chunk = [&](int64_t c) { return *reinterpret_cast<const Vector*>(chunks + (c - first) * n + i); };
    Vector sum = begin % per_shard == 0 ? chunk(begin) : *leaf;
#pragma unroll 4
    for (int64_t c = begin % per_shard == 0 ? begin + 1 : begin; c < end; ++c) {
      const Vector next = chunk(c);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) sum.x[k] = sum.x[k] + next.x[k];
    }
    *leaf = sum;
  }
}

unsigned blocks_for(int64_t items) { return static_cast<unsigned>((items + kThreads - 1) / kThreads); }

void queue_columns(const ConvShape& s, const void* x, int64_t first, int64_t count, void* columns, void* stream) {
  if (count <= 0) return;
  const Stream queue = static_cast<Stream>(stream);
  const int64_t row_vectors = s.columns() * s.element_bytes / 16;
  uint4* const to = static_cast<uint4*>(columns);
  if (s.channels * s.element_bytes % 16 == 0 && s.columns() == s.kernel_h * s.kernel_w * s.channels && aligned16(x)) {
    const int64_t groups = (count + kRowsPerThread - 1) / kRowsPerThread;
    copy_columns<<<blocks_for(groups * row_vectors), kThreads, 0, queue>>>(s, static_cast<const uint4*>(x), first,
                                                                           count, to);
  } else if (s.element_bytes == 2) {
    gather_columns<<<blocks_for(count * row_vectors), kThreads, 0, queue>>>(
        s, static_cast<int>(row_vectors), static_cast<const uint16_t*>(x), first, count, to);
  } else {
    gather_columns<<<blocks_for(count * row_vectors), kThreads, 0, queue>>>(
        s, static_cast<int>(row_vectors), static_cast<const uint32_t*>(x), first, count, to);
  }
  check_launch("convolution columns");
}

void queue_chunk_sums(const float* chunks, int64_t first, int64_t count, int64_t per_shard, int64_t n, float* leaves,
                      void* stream) {
  if (count <= 0 || n <= 0) return;
  const int64_t shards = (first + count - 1) / per_shard - first / per_shard + 1;
  const bool by_four = n % 4 == 0 && aligned16(chunks, leaves);
  const dim3 grid(static_cast<unsigned>(grid_for(by_four ? n / 4 : n)), static_cast<unsigned>(shards));
  if (by_four)
    sum_chunks<4><<<grid, kThreads, 0, static_cast<Stream>(stream)>>>(chunks, first, count, per_shard, n, leaves);
  else
    sum_chunks<1><<<grid, kThreads, 0, static_cast<Stream>(stream)>>>(chunks, first, count, per_shard, n, leaves);
  check_launch("convolution chunk sums");
}

}  // namespace

const ConvKernels& conv_kernels() {
  static const ConvKernels kernels{queue_columns, queue_chunk_sums};
  return kernels;
}

}  // namespace tandem::cuda
