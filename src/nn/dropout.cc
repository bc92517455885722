#include "nn/dropout.h"

#include <torch/torch.h>

#include "kernels/device.h"

namespace tandem {

at::Tensor dropout(const at::Tensor& x, double p, const RandomSource& key) {
  if (p == 0 || !key.training) return x;
  at::Tensor mask = at::empty(x.sizes(), x.options().dtype(at::kFloat).requires_grad(false));
  Device& where = x.is_cuda() ? device() : cpu_device();
  where.fill_dropout_mask(mask.data_ptr<float>(), mask.numel(), key, 0, p);
  return x * mask.to(x.dtype());
}

}  // namespace tandem
