// tests/gpu/kernel_twins.cu -- every CUDA kernel beside its CPU twin: equal bits over sizes and alignments, then speed.
//
// One JSON line per kernel and size: {"kernel","n","shift","equal","gbps"}; gbps is that of the largest size, of the
// bytes a perfect kernel moves (null for the others). Exit 1 if any differs, 2 if there is no GPU. Builds alone, on a
// bare machine:
//   nvcc -std=c++20 -O3 -arch=native --fmad=false -Isrc -Xcompiler
//     -ffp-contract=off,-fno-math-errno,-fno-trapping-math,-Wno-unknown-pragmas -o kernel_twins
//     tests/gpu/kernel_twins.cu src/kernels/cuda_*.cu
//     src/kernels/{cuda_device,device,norms,optimizers,random_fill,state_hash,sums}.cc
#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/norms.h"
#include "kernels/cpu/optimizers.h"
#include "kernels/cpu/random_fill.h"
#include "kernels/cpu/state_hash.h"
#include "kernels/cpu/sums.h"
#include "kernels/device.h"
#include "kernels/gpu/cuda_device.h"
#include "kernels/gpu/kernels.h"
#include "kernels/permutation.h"

namespace {

using namespace tandem;

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "error: %s: %s, %s\n", what, cudaGetErrorName(error), cudaGetErrorString(error));
  std::exit(2);
}

// The same numbers in host and device memory, `shift` elements after an aligned address on both.
template <typename T>
class Pair {
 public:
  Pair(const std::vector<T>& values, int shift) : host_(shift + values.size()), shift_(shift) {
    std::copy(values.begin(), values.end(), host_.begin() + shift);
    check(cudaMalloc(&device_, (host_.size() + 1) * sizeof(T)), "cudaMalloc");
    check(cudaMemcpy(device_, host_.data(), host_.size() * sizeof(T), cudaMemcpyHostToDevice), "copy to the device");
  }
  Pair(const Pair&) = delete;
  ~Pair() { cudaFree(device_); }
  T* host() { return host_.data() + shift_; }
  T* device() { return device_ + shift_; }
  // Bit for bit, NaN equal to NaN. Also the elements before `shift`, which nobody may have written.
  bool equal() {
    std::vector<T> back(host_.size());
    check(cudaMemcpy(back.data(), device_, back.size() * sizeof(T), cudaMemcpyDeviceToHost), "copy to the host");
    for (size_t i = 0; i < back.size(); ++i) {
      if (std::memcmp(&back[i], &host_[i], sizeof(T)) == 0) continue;
      if (back[i] != back[i] && host_[i] != host_[i]) continue;
      std::fprintf(stderr, "  differs at element %zu of %zu: device %.17g, host %.17g\n", i - shift_,
                   back.size() - shift_, static_cast<double>(back[i]), static_cast<double>(host_[i]));
      return false;
    }
    return true;
  }

 private:
  std::vector<T> host_;
  T* device_ = nullptr;
  int shift_;
};

// Weights and gradients of all magnitudes, with zeros, subnormals and both signs among them.
std::vector<float> values(int64_t n, uint32_t site) {
  std::vector<float> out(static_cast<size_t>(n));
  fill_normal(out.data(), n, RandomKey{99, 1, 2, site});
  for (int64_t i = 0; i < n; ++i) {
    if (i % 7 == 3) out[i] = std::ldexp(out[i], static_cast<int>(i % 250) - 140);
    if (i % 31 == 5) out[i] = i % 2 ? 0.0f : -0.0f;
  }
  return out;
}
std::vector<float> positive(int64_t n, uint32_t site) {
  std::vector<float> out = values(n, site);
  for (float& x : out) x = std::fabs(x);
  return out;
}

class Report {
 public:
  void line(const std::string& kernel, int64_t n, int shift, bool equal, double gbps) {
    std::printf("{\"kernel\": \"%s\", \"n\": %lld, \"shift\": %d, \"equal\": %s, \"gbps\": ", kernel.c_str(),
                static_cast<long long>(n), shift, equal ? "true" : "false");
    if (gbps > 0)
      std::printf("%.1f}\n", gbps);
    else
      std::printf("null}\n");
    std::fflush(stdout);
    all_equal_ = all_equal_ && equal;
  }
  bool all_equal() const { return all_equal_; }

 private:
  bool all_equal_ = true;
};

double gbps_of(double bytes, const std::function<void()>& launch) {
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  constexpr int kRuns = 20;
  launch();
  check(cudaEventRecord(begin), "event");
  for (int i = 0; i < kRuns; ++i) launch();
  check(cudaEventRecord(end), "event");
  check(cudaEventSynchronize(end), "running a kernel");
  float ms = 0;
  check(cudaEventElapsedTime(&ms, begin, end), "event");
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return bytes * kRuns / (ms * 1e6);
}

struct Size {
  int64_t n;
  int shift;
  bool timed;
};

double timed(const Size& size, double bytes_per_element, const std::function<void()>& launch) {
  return size.timed ? gbps_of(bytes_per_element * static_cast<double>(size.n), launch) : 0.0;
}

void random_twins(Report& report, const Size& size) {
  const auto [n, shift, _] = size;
  const std::vector<float> blank(static_cast<size_t>(n), -1.0f);
  for (uint64_t first : {uint64_t{0}, uint64_t{3}, (uint64_t{1} << 34) - 5}) {
    if (size.timed && first != 0) continue;
    const RandomKey key{0x123456789ABCDEFu, (uint64_t{5} << 32) + 77, 23, 4000};
    RandomKey* device_key;
    check(cudaMalloc(&device_key, sizeof key), "cudaMalloc");
    check(cudaMemcpy(device_key, &key, sizeof key, cudaMemcpyHostToDevice), "copy to the device");
    const std::string at = first == 0 ? "" : first == 3 ? "/first=3" : "/first=2^34-5";
    {
      Pair<uint32_t> out(std::vector<uint32_t>(static_cast<size_t>(n), 1u), shift);
      fill_u32(out.host(), n, key, first);
      cuda::fill_u32(out.device(), n, key, first, nullptr);
      report.line("fill_u32" + at, n, shift, out.equal(),
                  timed(size, 4, [&] { cuda::fill_u32(out.device(), n, key, first, nullptr); }));
    }
    Pair<float> out(blank, shift);
    fill_uniform(out.host(), n, key, first, -2.0f, 3.0f);
    cuda::fill_uniform(out.device(), n, device_key, first, -2.0f, 3.0f, nullptr);
    report.line("fill_uniform" + at, n, shift, out.equal(),
                timed(size, 4, [&] { cuda::fill_uniform(out.device(), n, key, first, -2.0f, 3.0f, nullptr); }));
    fill_normal(out.host(), n, key, first, 0.5f, 2.0f);
    cuda::fill_normal(out.device(), n, device_key, first, 0.5f, 2.0f, nullptr);
    report.line("fill_normal" + at, n, shift, out.equal(),
                timed(size, 4, [&] { cuda::fill_normal(out.device(), n, key, first, 0.5f, 2.0f, nullptr); }));
    fill_bernoulli_mask(out.host(), n, key, first, 0.3, 5.0f);
    cuda::fill_bernoulli_mask(out.device(), n, device_key, first, 0.3, 5.0f, nullptr);
    report.line("fill_bernoulli_mask" + at, n, shift, out.equal(), 0);
    fill_dropout_mask(out.host(), n, key, first, 0.1);
    cuda::fill_dropout_mask(out.device(), n, key, first, 0.1, nullptr);
    report.line("fill_dropout_mask" + at, n, shift, out.equal(),
                timed(size, 4, [&] { cuda::fill_dropout_mask(out.device(), n, key, first, 0.1, nullptr); }));
    RandomKey elsewhere = key;
    elsewhere.site = 12;
    fill_dropout_mask(out.host(), n, elsewhere, first, 0.25);
    cuda::fill_dropout_mask(out.device(), n, device_key, 12, first, 0.25, nullptr);
    report.line("fill_dropout_mask/site" + at, n, shift, out.equal(), 0);
    cudaFree(device_key);
  }
  Pair<int64_t> order(std::vector<int64_t>(static_cast<size_t>(n), -1), shift);
  const Permutation permutation(static_cast<uint64_t>(n) + 11, 42, 3);
  for (int64_t i = 0; i < n; ++i) order.host()[i] = static_cast<int64_t>(permutation.at(static_cast<uint64_t>(i) + 5));
  const auto permute = [&] {
    cuda::fill_permutation(order.device(), n, static_cast<uint64_t>(n) + 11, 42, 3, 5, nullptr);
  };
  permute();
  report.line("fill_permutation", n, shift, order.equal(), timed(size, 8, permute));
}

void optimizer_twins(Report& report, const Size& size) {
  const auto [n, shift, _] = size;
  for (const bool decoupled : {false, true}) {
    Pair<float> p(values(n, 1), shift), g(values(n, 2), shift), m(values(n, 3), shift), v(positive(n, 4), shift);
    const AdamParams params = adam_params(3e-4, 0.9, 0.999, 1e-8, 0.01, decoupled, 7);
    AdamParams* device_params;
    UpdateDecision* device_decision;
    const float grad_scale = 0.125f;
    check(cudaMalloc(&device_params, sizeof params), "cudaMalloc");
    const UpdateDecision decision{.scale = grad_scale};
    check(cudaMalloc(&device_decision, sizeof decision), "cudaMalloc");
    check(cudaMemcpy(device_params, &params, sizeof params, cudaMemcpyHostToDevice), "copy to the device");
    check(cudaMemcpy(device_decision, &decision, sizeof decision, cudaMemcpyHostToDevice), "copy to the device");
    adam_update(p.host(), g.host(), m.host(), v.host(), n, params, grad_scale);
    adam_update(p.host(), g.host(), m.host(), v.host(), n, params, grad_scale);
    cuda::adam_update(p.device(), g.device(), m.device(), v.device(), n, params, grad_scale, nullptr);
    cuda::adam_update(p.device(), g.device(), m.device(), v.device(), n, device_params, device_decision, nullptr);
    const UpdateDecision skip{.scale = grad_scale, .skip = 1};  // leaves everything as it is
    check(cudaMemcpy(device_decision, &skip, sizeof skip, cudaMemcpyHostToDevice), "copy to the device");
    cuda::adam_update(p.device(), g.device(), m.device(), v.device(), n, device_params, device_decision, nullptr);
    cuda::soft_update(p.device(), g.device(), 0.5f, n, device_decision, nullptr);
    const bool equal = p.equal() && g.equal() && m.equal() && v.equal();
    report.line(decoupled ? "adamw_update" : "adam_update", n, shift, equal, timed(size, 28, [&] {
                  cuda::adam_update(p.device(), g.device(), m.device(), v.device(), n, params, grad_scale, nullptr);
                }));
    cudaFree(device_params);
    cudaFree(device_decision);
  }
  for (int form = 0; form < 4; ++form) {
    SgdParams params{0.05f, form == 0 ? 0.0f : 0.9f, 0.01f, form == 2, form == 3};
    Pair<float> p(values(n, 5), shift), g(values(n, 6), shift), velocity(values(n, 7), shift);
    sgd_update(p.host(), g.host(), velocity.host(), n, params, 0.5f);
    cuda::sgd_update(p.device(), g.device(), form == 0 ? nullptr : velocity.device(), n, params, 0.5f, nullptr);
    const bool equal = p.equal() && g.equal() && velocity.equal();
    const char* names[] = {"sgd_update/plain", "sgd_update/momentum", "sgd_update/nesterov", "sgd_update/first"};
    report.line(names[form], n, shift, equal, timed(size, form == 0 ? 12 : 20, [&] {
                  cuda::sgd_update(p.device(), g.device(), velocity.device(), n, params, 0.5f, nullptr);
                }));
  }
}

// What the GPU decides about an update, for every kind of gradient.
void decision_twins(Report& report) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();
  bool equal = true;
  int64_t cases = 0;
  for (double squares : {0.0, 1e-300, 0.3, 1.7, 1e12, kInf, kNan})
    for (double clip : {0.0, 1.0, 0.37})
      for (double scale : {1.0, 65536.0})
        for (int finite : {0, 1})
          for (int64_t flag : {0, 9})
            for (int64_t bad : {-1, 4}) {
              const UpdateParams one{.loss_scale = scale, .clip_norm = clip, .flag = flag};
              Pair<UpdateParams> params({one}, 0);
              Pair<UpdateDecision> decision({UpdateDecision{}}, 0);
              Pair<double> sums({squares}, 0);
              Pair<int> statistics({finite}, 0);
              Pair<int64_t> flags({-1, bad, -1}, 0);
              decision.host()[0] = decide_update(squares, finite != 0, flag != 0 || bad >= 0, one);
              cuda::decide_update(decision.device(), params.device(), sums.device(), statistics.device(),
                                  flags.device(), 3, nullptr);
              UpdateDecision found;
              check(cudaMemcpy(&found, decision.device(), sizeof found, cudaMemcpyDeviceToHost), "copy to the host");
              const UpdateDecision& want = decision.host()[0];
              const bool same_norm = found.norm == want.norm || (found.norm != found.norm && want.norm != want.norm);
              const bool same_scale =
                  found.scale == want.scale || (found.scale != found.scale && want.scale != want.scale);
              equal = equal && same_norm && same_scale && found.finite == want.finite && found.skip == want.skip;
              ++cases;
            }
  report.line("decide_update", cases, 0, equal, 0);
}

// All weights of several groups at once: decisions from their norms, and the update of segments.
void group_twins(Report& report) {
  for (int groups : {1, 6})
    for (const int64_t n : {int64_t{16}, int64_t{4096}, int64_t{262'160}, int64_t{1'100'000}}) {
      for (const auto& [clip, bad] : {std::pair{0.0, false}, {0.5, false}, {0.5, true}}) {
        const int64_t all = n * groups;
        std::vector<float> gradient = values(all, 2);
        if (bad) gradient[static_cast<size_t>(n / 2)] = std::nanf("");
        Pair<float> p(values(all, 1), 0), g(gradient, 0), m(values(all, 3), 0), v(positive(all, 4), 0);
        Pair<float> target(values(all, 5), 0);
        const bool with_target = clip > 0;
        UpdateParams one{.loss_scale = 1, .clip_norm = clip};
        for (int decays : {0, 1}) one.adam[decays] = adam_params(3e-4, 0.9, 0.999, 1e-8, 0.01 * decays, false, 7);
        std::vector<UpdateSegment> table;
        for (int group = 0; group < groups; ++group) {
          if (n > 16) table.push_back({group * n + n / 32 * 16, 1, group});
          for (int64_t end = 48; table.size() < 2000 && end < n / 2; end += 48)  // small ones, and some that are empty
            for (int64_t k = 0; k <= end / 48 % 2; ++k)
              table.push_back({group * n + n / 32 * 16 + end, static_cast<int32_t>(end / 48 % 2), group});
          table.push_back({(group + 1) * n, 0, group});
        }
        Pair<UpdateParams> params({one}, 0);
        Pair<UpdateDecision> decisions(std::vector<UpdateDecision>(static_cast<size_t>(groups)), 0),
            decision({UpdateDecision{}}, 0);
        Pair<UpdateSegment> segments(table, 0);
        Pair<double> scratch(std::vector<double>(static_cast<size_t>(groups * cuda::norm_scratch_doubles(n))), 0);
        Pair<unsigned> arrived({0u}, 0);
        const int count = static_cast<int>(table.size());
        Device& cpu = cpu_device();
        cpu.decide_groups(decisions.host(), decision.host(), params.host(), g.host(), n, groups, nullptr, 0);
        cpu.adam_update(p.host(), g.host(), m.host(), v.host(), segments.host(), count, all, params.host(),
                        decisions.host(), {with_target ? target.host() : nullptr, 0.01f});
        cuda::decide_groups(decisions.device(), decision.device(), params.device(), g.device(), n, groups, nullptr, 0,
                            scratch.device(), arrived.device(), nullptr);
        cuda::adam_update(p.device(), g.device(), m.device(), v.device(), segments.device(), count, all,
                          params.device(), decisions.device(), {with_target ? target.device() : nullptr, 0.01f},
                          nullptr);
        UpdateDecision found;
        check(cudaMemcpy(&found, decision.device(), sizeof found, cudaMemcpyDeviceToHost), "copy to the host");
        const double norm = decision.host()[0].norm;
        const bool decided = found.skip == decision.host()[0].skip && (found.skip != 0) == bad &&
                             (found.norm == norm || (std::isnan(found.norm) && std::isnan(norm)));
        report.line("decide_groups and adam_update/" + std::to_string(groups), all, 0,
                    decided && p.equal() && m.equal() && v.equal() && target.equal(), 0);
      }
    }
}

// Copies between the GPU and host memory that is pinned, is not, or is so in part; and of what a graph finds there
// each time it is replayed.
void copy_twins(Report& report) {
  cudaStream_t stream;
  check(cudaStreamCreate(&stream), "stream");
  const std::unique_ptr<Device> device = cuda::make_cuda_device(&stream);
  constexpr size_t kPinned = 8192, kAll = 2 * kPinned;
  const std::unique_ptr<char, decltype(&std::free)> memory(static_cast<char*>(std::aligned_alloc(4096, kAll)),
                                                           &std::free);
  char* const host = memory.get();
  void* const gpu = device->allocate(kPinned);
  const auto there_and_back = [&](size_t where, size_t bytes, char seed) {
    for (size_t i = 0; i < kAll; ++i) host[i] = static_cast<char>(seed + i * 7);
    std::vector<char> expected(host, host + kAll);
    device->queue_from_host(gpu, host + where, bytes);
    device->wait();
    std::memset(host + where, 0, bytes);
    device->queue_to_host(host + where, gpu, bytes);
    device->wait();
    return std::memcmp(host, expected.data(), kAll) == 0;
  };
  for (const bool pinned : {true, false}) {
    if (pinned) device->pin(host, kPinned);
    bool equal = true;
    for (const size_t where : {size_t{0}, size_t{2}, size_t{4}, kPinned - 4, kPinned + 64})
      for (const size_t bytes : {size_t{4}, size_t{6}, size_t{64}, size_t{4096}, size_t{4100}})
        equal = there_and_back(where, bytes, static_cast<char>(where + bytes)) && equal;
    report.line(pinned ? "copies, pinned" : "copies, not pinned", kAll, 0, equal, 0);
    if (!pinned) continue;
    cudaGraph_t graph;
    cudaGraphExec_t replayed;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing");
    device->queue_from_host(gpu, host, 64);
    device->queue_to_host(host + 128, gpu, 64);
    check(cudaStreamEndCapture(stream, &graph), "capturing");
    check(cudaGraphInstantiate(&replayed, graph, 0), "capturing");
    bool same = true;
    for (char time = 0; time < 3; ++time) {
      std::memset(host, time, 64);
      check(cudaGraphLaunch(replayed, stream), "replaying");
      device->wait();
      same = same && std::memcmp(host, host + 128, 64) == 0;
    }
    report.line("copies, captured", 64, 0, same, 0);
    cudaGraphExecDestroy(replayed);
    cudaGraphDestroy(graph);
    device->unpin(host);
  }
  device->release(gpu);
  cudaStreamDestroy(stream);
}

void sum_twins(Report& report, const Size& size) {
  const auto [n, shift, _] = size;
  for (int count : {1, 2, 3, 8, 37}) {
    if (size.timed && count > 8) continue;
    std::vector<std::unique_ptr<Pair<float>>> inputs;
    std::vector<const float*> host, device;
    for (int k = 0; k < count; ++k) {
      inputs.push_back(std::make_unique<Pair<float>>(values(n, 10 + k), (shift + k) % 2 ? shift : 0));
      host.push_back(inputs.back()->host());
      device.push_back(inputs.back()->device());
    }
    Pair<float> out(values(n, 9), shift);
    add_in_order(out.host(), host.data(), count, n);
    cuda::add_in_order(out.device(), device.data(), count, n, nullptr);
    bool equal = out.equal();
    add_in_order(inputs[0]->host(), host.data(), count, n);
    cuda::add_in_order(inputs[0]->device(), device.data(), count, n, nullptr);
    for (auto& input : inputs) equal = equal && input->equal();
    report.line("add_in_order/" + std::to_string(count), n, shift, equal, timed(size, 4 * (count + 1), [&] {
                  cuda::add_in_order(out.device(), device.data(), count, n, nullptr);
                }));
  }
  Pair<float> x(values(n, 50), shift), y(values(n, 51), shift);
  scale_add(y.host(), 0.3f, x.host(), n);
  cuda::scale_add(y.device(), 0.3f, x.device(), n, nullptr);
  report.line("scale_add", n, shift, y.equal() && x.equal(),
              timed(size, 12, [&] { cuda::scale_add(y.device(), 0.0f, x.device(), n, nullptr); }));
  scale(y.host(), 0.7f, n);
  cuda::scale(y.device(), 0.7f, n, nullptr);
  report.line("scale", n, shift, y.equal(), timed(size, 8, [&] { cuda::scale(y.device(), 1.0f, n, nullptr); }));
  soft_update(y.host(), x.host(), 0.005f, n);
  cuda::soft_update(y.device(), x.device(), 0.005f, n, nullptr);
  report.line("soft_update", n, shift, y.equal() && x.equal(),
              timed(size, 12, [&] { cuda::soft_update(y.device(), x.device(), 0.0f, n, nullptr); }));
}

void reduction_twins(Report& report, const Size& size) {
  const auto [n, shift, _] = size;
  Pair<float> x(values(n, 60), shift);
  {
    Pair<double> result({-1.0}, 0);
    Pair<double> scratch(std::vector<double>(static_cast<size_t>(cuda::norm_scratch_doubles(n))), 0);
    result.host()[0] = sum_of_squares(x.host(), n);
    const auto run = [&] { cuda::sum_of_squares(result.device(), x.device(), n, scratch.device(), nullptr); };
    run();
    report.line("sum_of_squares", n, shift, result.equal(), timed(size, 4, run));
  }
  {
    const int64_t bytes = 4 * n - (n > 0 ? n % 4 : 0);  // lengths that end inside a word too
    Pair<uint64_t> result({1}, 0), blocks(block_hashes(x.host(), bytes), 0);
    Pair<uint64_t> found(std::vector<uint64_t>(static_cast<size_t>(hash_block_count(bytes)), 7), 0);
    result.host()[0] = state_hash(x.host(), bytes);
    const auto run = [&] { cuda::state_hash(result.device(), x.device(), bytes, found.device(), nullptr); };
    run();
    std::copy(blocks.host(), blocks.host() + hash_block_count(bytes), found.host());
    report.line("state_hash", n, shift, result.equal() && found.equal(), timed(size, 4, run));
  }
  Pair<int> finite({-1}, 0);
  Pair<int64_t> first({-7}, 0);
  const auto search = [&](const std::string& name) {
    finite.host()[0] = all_finite(x.host(), n) ? 1 : 0;
    first.host()[0] = first_nonfinite(x.host(), n);
    const auto run_all = [&] { cuda::all_finite(finite.device(), x.device(), n, nullptr); };
    const auto run_first = [&] { cuda::first_nonfinite(first.device(), x.device(), n, nullptr); };
    run_all();
    run_first();
    report.line("all_finite" + name, n, shift, finite.equal(), timed(size, 4, run_all));
    report.line("first_nonfinite" + name, n, shift, first.equal(), timed(size, 4, run_first));
  };
  search("");
  const auto put = [&](int64_t at, float value) {
    if (at < 0 || at >= n) return;
    x.host()[at] = value;
    check(cudaMemcpy(x.device() + at, &value, sizeof value, cudaMemcpyHostToDevice), "copy to the device");
  };
  put(n - 1, std::numeric_limits<float>::infinity());
  search("/last");
  put(n / 2, std::numeric_limits<float>::quiet_NaN());
  put(n / 3, -std::numeric_limits<float>::infinity());
  search("/three");
}

}  // namespace

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::fprintf(stderr, "error: no CUDA GPU\n  why    %s\n  do     run this on a machine with one\n",
                 cudaGetErrorString(cudaGetLastError()));
    return 2;
  }
  Report report;
  try {
    decision_twins(report);
    group_twins(report);
    copy_twins(report);
    std::vector<Size> sizes;
    for (int64_t n : {0, 1, 3, 31, 255, 4096, 4097, 70001, 1048576, 2621447})
      for (int shift : {0, 1, 3}) sizes.push_back({n, shift, false});
    sizes.push_back({int64_t{1} << 25, 0, true});
    for (const Size& size : sizes) {
      random_twins(report, size);
      optimizer_twins(report, size);
      sum_twins(report, size);
      reduction_twins(report, size);
    }
    check(cudaDeviceSynchronize(), "the last kernels");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  return report.all_equal() ? 0 : 1;
}
