// kernels/gpu/random.cu -- CUDA twins of random_fill.cc: one thread, one Philox block of four numbers.
#include "kernels/gpu/launch.h"
#include "kernels/permutation.h"
#include "kernels/random_fill_math.h"

namespace tandem::cuda {
namespace {

// Philox block b holds the numbers of indices 4 b to 4 b + 3; a fill may use only a part of its first and last block.
template <template <typename> class Source, typename T, typename Make>
__global__ void fill(T* out, int64_t n, Source<RandomKey> source, uint64_t first_index, Make make) {
  const RandomKey key = source.get();
  const uint64_t first_block = first_index / 4, last_block = (first_index + static_cast<uint64_t>(n) - 1) / 4;
  const int64_t blocks = static_cast<int64_t>(last_block - first_block) + 1;
  for (int64_t b = first_item(); b < blocks; b += item_stride()) {
    const PhiloxBlock block = random_block(key, first_block + static_cast<uint64_t>(b));
    const int64_t first = 4 * b - static_cast<int64_t>(first_index % 4);
    const T values[4] = {make(block.word[0]), make(block.word[1]), make(block.word[2]), make(block.word[3])};
    if (first >= 0 && first + 4 <= n && reinterpret_cast<uintptr_t>(out + first) % 16 == 0) {
      uint4 packed;
      __builtin_memcpy(&packed, values, 16);
      *reinterpret_cast<uint4*>(out + first) = packed;
    } else {
      for (int w = 0; w < 4; ++w)
        if (first + w >= 0 && first + w < n) out[first + w] = values[w];
    }
  }
}

template <typename T, typename Make>
void launch_fill(const char* name, T* out, int64_t n, const RandomKey& key, uint64_t first_index, const Make& make,
                 Stream stream) {
  if (n <= 0) return;
  fill<<<grid_for(n / 4 + 2), kThreads, 0, stream>>>(out, n, Given<RandomKey>{key}, first_index, make);
  check_launch(name);
}
template <typename T, typename Make>
void launch_fill(const char* name, T* out, int64_t n, const RandomKey* key, uint64_t first_index, const Make& make,
                 Stream stream) {
  if (n <= 0) return;
  fill<<<grid_for(n / 4 + 2), kThreads, 0, stream>>>(out, n, OnDevice<RandomKey>{key}, first_index, make);
  check_launch(name);
}

template <typename Key>
struct AtSite {  // a key on the device, with another site
  const Key* pointer;
  uint32_t site;
  __device__ Key get() const {
    Key key = *pointer;
    key.site = site;
    return key;
  }
};

struct MakeWord {
  __device__ uint32_t operator()(uint32_t bits) const { return bits; }
};
struct MakeUniform {
  UniformShape shape;
  __device__ float operator()(uint32_t bits) const { return shaped_uniform(bits, shape); }
};
struct MakeNormal {
  NormalShape shape;
  __device__ float operator()(uint32_t bits) const { return shaped_normal(normal_from_u32(bits), shape); }
};
struct MakeMask {
  MaskShape shape;
  __device__ float operator()(uint32_t bits) const { return shape.none ? 0.0f : mask_from_u32(bits, shape); }
};

__global__ void permute(int64_t* out, int64_t count, Permutation permutation, uint64_t first) {
  for (int64_t i = first_item(); i < count; i += item_stride())
    out[i] = static_cast<int64_t>(permutation.at(first + static_cast<uint64_t>(i)));
}

}  // namespace

void fill_u32(uint32_t* out, int64_t n, const RandomKey& key, uint64_t first_index, Stream stream) {
  launch_fill("fill_u32", out, n, key, first_index, MakeWord{}, stream);
}
void fill_u32(uint32_t* out, int64_t n, const RandomKey* key, uint64_t first_index, Stream stream) {
  launch_fill("fill_u32", out, n, key, first_index, MakeWord{}, stream);
}
void fill_uniform(float* out, int64_t n, const RandomKey& key, uint64_t first_index, float low, float high,
                  Stream stream) {
  launch_fill("fill_uniform", out, n, key, first_index, MakeUniform{uniform_shape(low, high)}, stream);
}
void fill_uniform(float* out, int64_t n, const RandomKey* key, uint64_t first_index, float low, float high,
                  Stream stream) {
  launch_fill("fill_uniform", out, n, key, first_index, MakeUniform{uniform_shape(low, high)}, stream);
}
void fill_normal(float* out, int64_t n, const RandomKey& key, uint64_t first_index, float mean, float deviation,
                 Stream stream) {
  launch_fill("fill_normal", out, n, key, first_index, MakeNormal{{mean, deviation}}, stream);
}
void fill_normal(float* out, int64_t n, const RandomKey* key, uint64_t first_index, float mean, float deviation,
                 Stream stream) {
  launch_fill("fill_normal", out, n, key, first_index, MakeNormal{{mean, deviation}}, stream);
}
void fill_bernoulli_mask(float* out, int64_t n, const RandomKey& key, uint64_t first_index, double keep_probability,
                         float kept_value, Stream stream) {
  launch_fill("fill_bernoulli_mask", out, n, key, first_index, MakeMask{mask_shape(keep_probability, kept_value)},
              stream);
}
void fill_bernoulli_mask(float* out, int64_t n, const RandomKey* key, uint64_t first_index, double keep_probability,
                         float kept_value, Stream stream) {
  launch_fill("fill_bernoulli_mask", out, n, key, first_index, MakeMask{mask_shape(keep_probability, kept_value)},
              stream);
}
void fill_dropout_mask(float* out, int64_t n, const RandomKey& key, uint64_t first_index, double drop_probability,
                       Stream stream) {
  launch_fill("fill_dropout_mask", out, n, key, first_index, MakeMask{dropout_shape(drop_probability)}, stream);
}
void fill_dropout_mask(float* out, int64_t n, const RandomKey* key, uint64_t first_index, double drop_probability,
                       Stream stream) {
  launch_fill("fill_dropout_mask", out, n, key, first_index, MakeMask{dropout_shape(drop_probability)}, stream);
}
void fill_dropout_mask(float* out, int64_t n, const RandomKey* key, uint32_t site, uint64_t first_index,
                       double drop_probability, Stream stream) {
  if (n <= 0) return;
  fill<<<grid_for(n / 4 + 2), kThreads, 0, stream>>>(out, n, AtSite<RandomKey>{key, site}, first_index,
                                                     MakeMask{dropout_shape(drop_probability)});
  check_launch("fill_dropout_mask");
}

void fill_permutation(int64_t* out, int64_t count, uint64_t n, uint64_t seed, uint64_t epoch, uint64_t first,
                      Stream stream) {
  if (count <= 0) return;
  permute<<<grid_for(count), kThreads, 0, stream>>>(out, count, Permutation(n, seed, epoch), first);
  check_launch("fill_permutation");
}

}  // namespace tandem::cuda
