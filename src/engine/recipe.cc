#include "engine/recipe.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <stdexcept>

#include "base/errors.h"
#include "engine/loop_observer.h"
#include "engine/precision.h"
#include "engine/tree_sums.h"
#include "reduce/order_free_sum.h"

namespace tandem {
namespace {

void add_all(std::span<int64_t> to, const at::Tensor& numbers) {
  for (int64_t i = 0; i < numbers.numel(); ++i) to[static_cast<size_t>(i)] += numbers.const_data_ptr<int64_t>()[i];
}

}  // namespace

void ShardContext::backward(const at::Tensor& loss) {
  if (backwards_left_-- == 0) throw std::logic_error("backward() was called twice in a phase that says one_backward");
  PrecisionScope full("fp32");  // autocast is for forward; backward follows the types that forward chose
  if (loss.numel() != group) throw std::logic_error("backward() takes one number for each shard of the run");
  const at::Tensor all = loss.dim() == 0 ? loss : loss.sum();  // the gradient of a part does not depend on the others
  if (loss_scale_tensor_.defined())
    (all * loss_scale_tensor_).backward();
  else
    (loss_scale_ == 1 ? all : all * loss_scale_).backward();
}

void ShardContext::add(int index, const at::Tensor& value) {
  at::NoGradGuard no_grad;
  if (group > 1) return tree_sums_->add_floats(index, value);
  if (float_sums_.defined()) {
    float_sums_.narrow(0, index, value.numel()).add_(value.reshape({-1}));
    return;
  }
  // Floats in host memory are read where they are: to() costs microseconds even where it does nothing.
  const bool plain = value.is_cpu() && value.scalar_type() == at::kFloat && value.is_contiguous();
  const at::Tensor host = plain ? value : value.to(at::kCPU, at::kFloat).contiguous();
  for (int64_t i = 0; i < host.numel(); ++i) floats[index + i] += host.const_data_ptr<float>()[i];
}

void ShardContext::count(int index, const at::Tensor& value) {
  at::NoGradGuard no_grad;
  const bool flags = value.scalar_type() == at::kBool;
  if (count_sums_.defined())
    flags ? count_sums_.select(0, index).add_(value.sum())
          : count_sums_.narrow(0, index, value.numel()).add_(value.reshape({-1}));
  else if (flags && value.is_cpu() && value.is_contiguous())
    counts[index] += std::count(value.const_data_ptr<bool>(), value.const_data_ptr<bool>() + value.numel(), true);
  else if (flags || value.numel() == 1)
    counts[index] += (flags ? value.sum() : value).item<int64_t>();
  else
    add_all(counts.subspan(static_cast<size_t>(index)), value.to(at::kCPU, at::kLong).contiguous());
}

void ShardContext::sum(int index, const at::Tensor& values) {
  at::NoGradGuard no_grad;
  if (training_) throw std::logic_error("sum() is for validate(); run() adds by add()");
  const at::Tensor real = values.narrow(0, 0, batch_->slice.real).to(at::kCPU, at::kFloat).contiguous();
  add_to_words(sum_words_.subspan(static_cast<size_t>(index) * kSumWords, kSumWords),
               {real.const_data_ptr<float>(), static_cast<size_t>(real.numel())});
}

void ShardContext::gather(int index, const at::Tensor& values) {
  if (training_) throw std::logic_error("gather() is for validate()");
  const at::Tensor real = values.narrow(0, 0, batch_->slice.real).to(at::kCPU, at::kLong).contiguous();
  const int64_t first = index * rows_in_pass_ + shard * values.size(0);
  const std::span<int64_t> to = gathered_.subspan(static_cast<size_t>(first), static_cast<size_t>(real.numel()));
  std::copy_n(real.const_data_ptr<int64_t>(), real.numel(), to.begin());
}

void ShardContext::alive() const {
  if (observer_) observer_->alive();
}

void ShardContext::send(int to_shard, std::vector<std::byte>&& row) {
  outgoing_.push_back({shard, to_shard, std::move(row)});
}

std::string Recipe::answer(const std::string&, JobState&) {
  throw ConfigError("this recipe answers no questions", "it has no verb that asks its worker", "use `tandem eval`");
}

const RecipeEntry& find_recipe_entry(const std::vector<RecipeEntry>& recipes, const std::string& name) {
  std::vector<RecipeInfo> infos;
  for (const RecipeEntry& entry : recipes) infos.push_back(entry.info);
  const std::string found = find_recipe(infos, name).name;
  return *std::ranges::find_if(recipes, [&](const RecipeEntry& entry) { return entry.info.name == found; });
}

}  // namespace tandem
