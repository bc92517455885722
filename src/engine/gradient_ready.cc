#include "engine/gradient_ready.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace tandem {
namespace {

constexpr int64_t kLeastFloats = 1 << 16;

}  // namespace

struct GradientReady::Hook : torch::autograd::PostAccumulateGradHook {
  Hook(GradientReady& o, size_t s) : owner(o), parameter(s) {}
  void operator()(const torch::autograd::Variable&) override { owner.by_autograd(parameter); }
  GradientReady& owner;
  size_t parameter;
};

GradientReady::GradientReady(JobState& state)
    : state_(state), done_(state.parameter_entries().size()), autograd_(done_.size()), handed_over_(done_.size()) {
  for (size_t i = 0; i < done_.size(); ++i)
    torch::autograd::impl::set_post_acc_grad_hooks(state.parameter_tensors()[i], std::make_unique<Hook>(*this, i));
}

GradientReady::~GradientReady() {
  for (const at::Tensor& parameter : state_.parameter_tensors())
    torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
}

void GradientReady::begin(Report report) {
  report_ = std::move(report);
  ++begun_;
  std::fill(done_.begin(), done_.end(), false);
  next_ = done_.size();
  reported_ = state_.parameter_floats();
}

void GradientReady::by_autograd(size_t parameter) {
  if (!report_) return;
  autograd_[parameter] = true;
  final(parameter);
}

void GradientReady::final_at(int64_t offset) {
  if (!report_ || offset >= state_.parameter_floats()) return;
  const auto parameter = static_cast<size_t>(state_.tensor_at(offset));
  handed_over_[parameter] = true;
  final(parameter);
}

void GradientReady::final(size_t parameter) {
  if ((state_.has_shard_aware() && begun_ < 2) || (autograd_[parameter] && handed_over_[parameter])) return;
  done_[parameter] = true;
  while (next_ > 0 && done_[next_ - 1]) --next_;
  const int64_t from = next_ < done_.size() ? state_.parameter_entries()[next_].offset : state_.parameter_floats();
  if (reported_ - from < kLeastFloats && !(next_ == 0 && from < reported_)) return;
  reported_ = from;
  report_(from, state_.parameter_floats());
}

}  // namespace tandem
