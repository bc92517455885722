// kernels/cpu/linear_rows.cc -- CPU twins of gpu/linear_rows.cu.
#include <algorithm>
#include <type_traits>
#include <vector>

#include "kernels/cpu/cpu_dispatch.h"
#include "kernels/linear_kernels.h"

namespace tandem {
namespace {

// body(type, form) with both as compile-time constants.
template <class Body>
void with_type(FloatType type, const Body& body) {
  using T = FloatType;
  if (type == T::kFloat) return body(std::integral_constant<T, T::kFloat>{});
  if (type == T::kBFloat16) return body(std::integral_constant<T, T::kBFloat16>{});
  body(std::integral_constant<T, T::kHalf>{});
}
template <class Body>
void with_form(FloatType type, GeluForm form, const Body& body) {
  with_type(type, [&](auto t) {
    if (form == GeluForm::kTanh)
      body(t, std::integral_constant<GeluForm, GeluForm::kTanh>{});
    else
      body(t, std::integral_constant<GeluForm, GeluForm::kErf>{});
  });
}

void gelu(const void* z, void* y, int64_t n, FloatType type, GeluForm form, void* /*stream*/) {
  with_form(type, form, [=](auto t, auto f) {
    run_with_fma([=]() TANDEM_INLINE_LAMBDA {
      TANDEM_INDEPENDENT
      for (int64_t i = 0; i < n; ++i)
        store_float(y, decltype(t)::value, i, gelu_of<decltype(f)::value>(load_float(z, decltype(t)::value, i)));
    });
  });
}

// Adds up rows in the order that linear_kernels.h fixes.
class ColumnAdder {
 public:
  ColumnAdder(int64_t rows, int64_t columns)
      : rows_(rows), columns_(columns), lanes_(static_cast<size_t>(kColumnLanes * columns)) {}

  // add_row(row, lane): adds the row's numbers to lane[0 .. columns). `sums` [columns].
  template <class AddRow>
  void add_shard(float* sums, const AddRow& add_row) {
    const int64_t block_rows = column_block_rows(rows_);
    for (int64_t begin = 0; begin < rows_; begin += block_rows) {
      std::fill(lanes_.begin(), lanes_.end(), 0.0f);
      const int64_t end = std::min(rows_, begin + block_rows);
      for (int64_t row = begin; row < end; ++row) add_row(row, lanes_.data() + (row - begin) % kColumnLanes * columns_);
      for (int lane = 1; lane < kColumnLanes; ++lane) add(lanes_.data(), lanes_.data() + lane * columns_);
      if (begin == 0)
        std::copy_n(lanes_.data(), columns_, sums);
      else
        add(sums, lanes_.data());
    }
    if (rows_ == 0) std::fill_n(sums, columns_, 0.0f);
  }

 private:
  void add(float* to, const float* from) const {
    run_variant(best_cpu_variant(), [=, n = columns_]() TANDEM_INLINE_LAMBDA {
      TANDEM_INDEPENDENT
      for (int64_t i = 0; i < n; ++i) to[i] = to[i] + from[i];
    });
  }
  int64_t rows_, columns_;
  std::vector<float> lanes_;
};

void gelu_gradient(const void* dy, const void* z, void* dz, int shards, int64_t rows, int64_t columns, FloatType type,
                   GeluForm form, float* sums, float* /*scratch*/, void* /*stream*/) {
  with_form(type, form, [=](auto t, auto f) {
    constexpr FloatType kType = decltype(t)::value;
    ColumnAdder adder(rows, columns);
    std::vector<float> unused(static_cast<size_t>(columns));
    for (int shard = 0; shard < shards; ++shard) {
      adder.add_shard(sums ? sums + shard * columns : unused.data(), [&](int64_t row, float* lane) {
        run_with_fma([=, first = (shard * rows + row) * columns]() TANDEM_INLINE_LAMBDA {
          TANDEM_INDEPENDENT
          for (int64_t i = 0; i < columns; ++i) {
            const float slope = gelu_slope<decltype(f)::value>(load_float(z, kType, first + i));
            const float value = round_to(kType, load_float(dy, kType, first + i) * slope);
            store_float(dz, kType, first + i, value);
            lane[i] = lane[i] + value;
          }
        });
      });
    }
  });
}

void column_sums(const void* dy, int shards, int64_t rows, int64_t columns, FloatType type, float* sums,
                 float* /*scratch*/, void* /*stream*/) {
  with_type(type, [=](auto t) {
    ColumnAdder adder(rows, columns);
    for (int shard = 0; shard < shards; ++shard) {
      adder.add_shard(sums + shard * columns, [&](int64_t row, float* lane) {
        run_variant(best_cpu_variant(), [=, first = (shard * rows + row) * columns]() TANDEM_INLINE_LAMBDA {
          TANDEM_INDEPENDENT
          for (int64_t i = 0; i < columns; ++i) lane[i] = lane[i] + load_float(dy, decltype(t)::value, first + i);
        });
      });
    }
  });
}

}  // namespace

const LinearKernels& LinearKernels::cpu() {
  static const LinearKernels kernels{tandem::gelu, tandem::gelu_gradient, tandem::column_sums};
  return kernels;
}

}  // namespace tandem
