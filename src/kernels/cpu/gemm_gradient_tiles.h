// kernels/cpu/gemm_gradient_tiles.h -- the loops of weight gradients; included after gemm_tiles.h, once per variant.
//
// Here the columns of y_grad take the part of rows, and k counts the rows of the batch.

// Blocks lie one line further apart than they take: at a power of two all of them would share a few sets of the cache.
inline int64_t block_floats(int64_t rows, int64_t width) { return (rows * width + 15) / 16 * 16 + 16; }

// Packs [rows, columns] as blocks of [rows][kWidth], the last one padded with zeros. row_of(r): null where it is zeros.
template <int64_t kWidth, class RowOf>
TANDEM_TILE void pack_blocks(const RowOf& row_of, int64_t rows, int64_t columns, float* blocks) {
  const int64_t apart = block_floats(rows, kWidth);
  constexpr int64_t kAhead = 8;  // rows are far apart: they are fetched ahead
  for (int64_t r = 0; r < rows; ++r) {
    const float *const row = row_of(r), *const later = r + kAhead < rows ? row_of(r + kAhead) : nullptr;
    for (int64_t c = 0; later && c < columns; c += 16) __builtin_prefetch(later + c);
    float* dst = blocks + r * kWidth;
    for (int64_t c = 0; c < columns; c += kWidth, dst += apart) {
      const int64_t count = row ? std::min(kWidth, columns - c) : 0;
      if (count == kWidth) {
        std::memcpy(dst, row + c, kWidth * sizeof(float));
      } else {
        std::copy_n(row + c, count, dst);
        std::fill(dst + count, dst + kWidth, 0.0f);
      }
    }
  }
}

struct GradientTile {
  int64_t height;           // columns of y_grad
  const float *y_grad, *x;  // [rows][kTileRows], [rows][kPanel]
  int64_t rows_per_shard;
  std::span<const int> merges;
  float *stack, *w_grad;      // the stack holds partial sums of whole shards
  int64_t w_stride, columns;  // columns: of the panel that are in the matrix
  Write write;
};

TANDEM_TILE void gradient_tile(const GradientTile& t) {
  constexpr int kColumns = Strip::kColumns;
  for (int64_t c = 0; c < t.columns; c += kColumns) {
    for (int64_t r = 0; r < t.height; ++r)  // they come while the sums are made
      for (int line = 0; line < kColumns; line += 16) __builtin_prefetch(t.w_grad + r * t.w_stride + c + line, 1);
    multiply_rows<Strip::kTileRows, Strip::kTileRows>(t.height, t.y_grad, t.x + c, t.rows_per_shard, t.merges, t.stack);
    const int64_t columns = std::min<int64_t>(kColumns, t.columns - c);
    for (int64_t r = 0; r < t.height; ++r) {
      float* const w_grad = t.w_grad + r * t.w_stride + c;
      const float* const sum = t.stack + r * kColumns;
      if (columns == kColumns) {
        Strip whole = Strip::load(sum);
        whole.add(t.write == Write::kAdd ? Strip::load(w_grad) : Strip::zero());  // of -0 and 0: 0
        whole.store(w_grad);
        continue;
      }
      for (int64_t i = 0; i < columns; ++i) w_grad[i] = sum[i] + (t.write == Write::kAdd ? w_grad[i] : 0.0f);
    }
  }
}

// x in panels, those of all inputs one after the other.
inline void pack_inputs(std::span<const GradientInput> inputs, int64_t rows, LineFloats& memory) {
  const int64_t apart = block_floats(rows, kPanel);
  int64_t panels = 0;
  for (const GradientInput& input : inputs) panels += panels_of(input.in);
  float* to = grow(memory, panels * apart);
  for (const GradientInput& input : inputs) {
    const auto row_of = [&](int64_t r) TANDEM_TILE_LAMBDA {
      if (input.steps == 0) return input.x + r * input.x_stride;
      return (input.first_step + r) % input.steps == 0 ? nullptr : input.x + (r - 1) * input.x_stride;
    };
    pack_blocks<kPanel>(row_of, rows, input.in, to);
    to += panels_of(input.in) * apart;
  }
}

// A block of y_grad's columns is packed and multiplied by all panels before the next one is: it stays in the L2 cache,
// beside as many panels as go there with it.
__attribute__((noinline)) void gradient_tiles(const float* y_grad, int64_t y_grad_stride,
                                              std::span<const GradientInput> inputs, int64_t out,
                                              int64_t rows_per_shard, std::span<const int> merges, Write write,
                                              WeightGradientScratch& scratch) {
  constexpr int64_t R = Strip::kTileRows, kBlockTiles = 8, kBlockFloats = 128 << 10;
  const int64_t rows = rows_per_shard * static_cast<int64_t>(merges.size());
  const int64_t tile_floats = block_floats(rows, R), panel_floats = block_floats(rows, kPanel);
  const int64_t block_columns = std::max<int64_t>(1, kBlockFloats / panel_floats) * kPanel;
  pack_inputs(inputs, rows, scratch.x);
  grow(scratch.y_grad, kBlockTiles * tile_floats);
  float* const stack = grow(scratch.stack, static_cast<int64_t>(merges.size()) * R * kPanel);
  for (int64_t first = 0; first < out; first += kBlockTiles * R) {
    const int64_t last = std::min(out, first + kBlockTiles * R);
    pack_blocks<R>([&](int64_t r) TANDEM_TILE_LAMBDA { return y_grad + r * y_grad_stride + first; }, rows, last - first,
                   scratch.y_grad.data());
    const float* panels = scratch.x.data();
    for (const GradientInput& input : inputs) {
      const int64_t w_stride = input.w_stride == 0 ? input.in : input.w_stride;
      for (int64_t block = 0; block < input.in; block += block_columns)
        for (int64_t o = first; o < last; o += R)
          for (int64_t c = block; c < std::min(input.in, block + block_columns); c += kPanel)
            gradient_tile({.height = std::min(R, last - o),
                           .y_grad = scratch.y_grad.data() + (o - first) / R * tile_floats,
                           .x = panels + c / kPanel * panel_floats,
                           .rows_per_shard = rows_per_shard,
                           .merges = merges,
                           .stack = stack,
                           .w_grad = input.w_grad + o * w_stride + c,
                           .w_stride = w_stride,
                           .columns = std::min(kPanel, input.in - c),
                           .write = write});
      panels += panels_of(input.in) * panel_floats;
    }
  }
}
