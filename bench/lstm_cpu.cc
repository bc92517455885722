// bench/lstm_cpu.cc -- an LSTM on one core, forward and backward in fp32: nn/lstm.h beside torch::nn::LSTM.
//
//   lstm_cpu [rows steps in hidden shards]       256 20 256 256 8 unless given
// First the two must agree: outputs and all gradients within 1e-5. Then they take turns, 30 rounds; a line for each:
// the median and the fastest tenth of the processor time in milliseconds. Ours runs the shards in one pass, as in
// training, and gives each shard's gradients; torch's runs the whole batch.
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <ctime>
#include <numeric>

#include "nn/init.h"
#include "nn/lstm.h"
#include "nn/test_pass.h"

namespace tandem {
namespace {

double processor_ms() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
}

struct Part {
  std::vector<double> forward, backward;
  void show(const char* name) {
    std::vector<double> both(forward.size());
    std::transform(forward.begin(), forward.end(), backward.begin(), both.begin(), std::plus<>());
    const auto at = [](std::vector<double>& values, size_t tenths) {
      std::sort(values.begin(), values.end());
      return values[values.size() * tenths / 10];
    };
    fmt::print("{:8} {:8.2f} ms, the fastest tenth {:8.2f} ms (forward {:.2f}, backward {:.2f})\n", name, at(both, 5),
               at(both, 1), at(forward, 1), at(backward, 1));
    median = at(both, 5), fast = at(both, 1);
  }
  double median = 0, fast = 0;
};

double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return ((a.flatten() - b.flatten()).abs().max() / b.abs().max()).item<double>();
}

int compare(int64_t rows, int64_t steps, int64_t in, int64_t hidden, int shards) {
  at::set_num_threads(1);
  Lstm ours(in, hidden);
  torch::nn::LSTM torchs(torch::nn::LSTMOptions(in, hidden).batch_first(true));
  init_weights(*ours, 1);
  init_weights(*torchs, 1);
  const at::Tensor x = test_numbers({rows, steps, in}, 1), dy = test_numbers({rows, steps, hidden}, 2);
  Part our_times, torchs_times;
  double worst = 0;
  for (int round = 0; round < 32; ++round) {
    at::Tensor mine = x.detach().requires_grad_(), theirs = x.detach().clone().requires_grad_();
    const TestPass pass(*ours, shards);
    const double begin = processor_ms();
    const at::Tensor y = ours(mine);
    const double middle = processor_ms();
    y.backward(dy);
    const double end = processor_ms();
    torchs->zero_grad();
    const double torchs_begin = processor_ms();
    const at::Tensor torchs_y = std::get<0>(torchs(theirs));
    const double torchs_middle = processor_ms();
    torchs_y.backward(dy);
    const double torchs_end = processor_ms();
    if (round == 0) {
      worst = std::max(largest_difference(y, torchs_y), largest_difference(mine.grad(), theirs.grad()));
      for (const auto& item : torchs->named_parameters())
        worst = std::max(worst, largest_difference(pass.sums.leaves(ours->named_parameters()[item.key()]).sum(0),
                                                   item.value().grad()));
    }
    if (round < 2) continue;
    our_times.forward.push_back(middle - begin), our_times.backward.push_back(end - middle);
    torchs_times.forward.push_back(torchs_middle - torchs_begin);
    torchs_times.backward.push_back(torchs_end - torchs_middle);
  }
  fmt::print("LSTM {} -> {}, {} rows of {} steps, {} shards; largest difference {:.1e}\n", in, hidden, rows, steps,
             shards, worst);
  if (worst > 1e-5) return 1;
  torchs_times.show("PyTorch");
  our_times.show("tandem");
  fmt::print("{:.2f}x, the fastest tenth {:.2f}x\n", torchs_times.median / our_times.median,
             torchs_times.fast / our_times.fast);
  return 0;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  const auto given = [&](int which, int64_t usual) { return argc > which ? std::stoll(argv[which]) : usual; };
  return tandem::compare(given(1, 256), given(2, 20), given(3, 256), given(4, 256), static_cast<int>(given(5, 8)));
}
