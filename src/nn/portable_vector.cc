#include "nn/portable_vector.h"

#include <signal.h>
#include <torch/torch.h>
#include <unistd.h>

#include <string_view>
#include <vector>

// The whole class and every form of its growth that libtorch_cpu exports: the one with SVE is
// _M_realloc_insert<at::Tensor&>, seen under emulation (docs/results.md).
using Tensors = std::vector<at::Tensor>;
template class std::vector<at::Tensor>;
template void Tensors::_M_realloc_insert<>(Tensors::iterator);
template void Tensors::_M_realloc_insert<at::Tensor>(Tensors::iterator, at::Tensor&&);
template void Tensors::_M_realloc_insert<at::Tensor&>(Tensors::iterator, at::Tensor&);
template void Tensors::_M_realloc_insert<const at::Tensor>(Tensors::iterator, const at::Tensor&&);
template void Tensors::_M_realloc_insert<const at::Tensor&>(Tensors::iterator, const at::Tensor&);

namespace tandem {
namespace {

void on_illegal_instruction(int) {
  constexpr std::string_view text =
      "error: this CPU can't run an instruction of libtorch\n"
      "  why    libtorch 2.11 has code for CPUs with SVE, and the program's own copy of it was not found first\n"
      "  do     link with -rdynamic (tandem::torch does), or use a libtorch built for this CPU (TORCH_DIR=)\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, text.data(), text.size());
  _exit(3);
}

}  // namespace

void use_portable_vector() {
  struct sigaction action {
  }, before{};
  action.sa_handler = on_illegal_instruction;
  sigaction(SIGILL, &action, &before);
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(1, 1).num_layers(2));
  sigaction(SIGILL, &before, nullptr);
}

}  // namespace tandem
