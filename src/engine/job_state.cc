#include "engine/job_state.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/errors.h"
#include "nn/here.h"
#include "nn/init.h"

namespace tandem {
namespace {

constexpr int64_t kAlignFloats = JobState::kAlignFloats;

int64_t padded(int64_t floats) { return (floats + kAlignFloats - 1) / kAlignFloats * kAlignFloats; }

std::span<float> floats_of(const at::Tensor& t) { return {t.data_ptr<float>(), static_cast<size_t>(t.numel())}; }

std::string joined(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

std::string shard_tensor_name(int shard, const std::string& field) {
  return fmt::format("shard.{:04}.{}", shard, field);
}

void refuse_impure_layers(torch::nn::Module& model) {
  for (const auto& item : model.named_modules()) {
    torch::nn::Module& part = *item.value();
    const std::string kind = part.name();
    if (part.as<BatchNorm>()) continue;
    if (kind.find("torch::nn::BatchNorm") != std::string::npos)
      throw ConfigError(
          fmt::format("the model's layer '{}' is torch::nn::BatchNorm", item.key()),
          "its forward changes the running statistics, so they would depend on which worker ran which shard",
          "use tandem::BatchNorm (nn/batch_norm.h); it has the same parameters");
    if (kind.find("Dropout") != std::string::npos && kind.find("torch::nn::") != std::string::npos)
      throw ConfigError(
          fmt::format("the model's layer '{}' is {}", item.key(), kind),
          "it draws from ATen's generator, so its mask would depend on the order in which shards are visited",
          "call tandem::dropout(x, p, context.random(site)) (nn/dropout.h)");
  }
}

template <class Layer>
void refuse_unregistered_weight(torch::nn::Module& module, const std::string& name) {
  auto* layer = module.as<Layer>();
  if (!layer || layer->weight.is_same(module.named_parameters(/*recurse=*/false)["weight"])) return;
  throw ConfigError(fmt::format("the model's layer '{}' uses another weight than it has registered", name),
                    "the registered one would be saved, though it is never trained",
                    "for tied weights call tandem::tie_weights(layer, other) (nn/tie_weights.h) in place of assigning");
}

void refuse_unregistered_weights(torch::nn::Module& model) {
  for (const auto& item : model.named_modules()) {
    refuse_unregistered_weight<torch::nn::Linear>(*item.value(), item.key());
    refuse_unregistered_weight<torch::nn::Embedding>(*item.value(), item.key());
    refuse_unregistered_weight<torch::nn::Conv1d>(*item.value(), item.key());
    refuse_unregistered_weight<torch::nn::Conv2d>(*item.value(), item.key());
    refuse_unregistered_weight<torch::nn::Conv3d>(*item.value(), item.key());
  }
}

// Two parameters in one memory would drift apart once each has a place of its own.
void refuse_overlaps(const std::vector<ParameterEntry>& entries, const std::vector<at::Tensor>& parameters) {
  std::map<const float*, size_t> by_memory;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].numel() == 0) continue;
    const auto [place, is_new] = by_memory.emplace(parameters[i].const_data_ptr<float>(), i);
    const auto after = std::next(place);
    size_t other = is_new ? i : place->second;
    if (is_new && place != by_memory.begin() &&
        std::prev(place)->first + parameters[std::prev(place)->second].numel() > place->first)
      other = std::prev(place)->second;
    if (is_new && after != by_memory.end() && place->first + parameters[i].numel() > after->first)
      other = after->second;
    if (is_new && other == i) continue;
    throw ConfigError(
        fmt::format("parameters '{}' and '{}' share memory, but are two tensors", entries[other].name, entries[i].name),
        "each would get a copy of its own, and they would no longer be equal after the first update",
        "register one tensor under both names: tandem::tie_weights(layer, other) (nn/tie_weights.h)");
  }
}

std::vector<at::Tensor> once_each(torch::nn::Module& module) {
  std::vector<at::Tensor> parameters;
  std::set<const void*> known;
  for (const auto& item : module.named_parameters())
    if (known.insert(item.value().unsafeGetTensorImpl()).second) parameters.push_back(item.value());
  return parameters;
}

bool is_channels_last(const at::Tensor& t) {
  if (t.is_contiguous()) return false;
  return (t.dim() == 4 && t.is_contiguous(at::MemoryFormat::ChannelsLast)) ||
         (t.dim() == 5 && t.is_contiguous(at::MemoryFormat::ChannelsLast3d));
}

at::Tensor row_major_view(const at::Tensor& flat, const ParameterEntry& entry) {
  return flat.narrow(0, entry.offset, entry.count).view(entry.sizes);
}

// The entry's part of a flat vector in memory, in the parameter's shape.
at::Tensor view_of(const at::Tensor& flat, const ParameterEntry& entry) {
  if (!entry.channels_last) return row_major_view(flat, entry);
  std::vector<int64_t> sizes = entry.sizes;
  sizes.erase(sizes.begin() + 1);
  sizes.push_back(entry.sizes[1]);
  return flat.narrow(0, entry.offset, entry.count).view(sizes).movedim(-1, 1);
}

// A further vector may be asked for first in the middle of a run, where libtorch's allocator gives memory that the next
// run overwrites (GpuDevice::in_work_memory).
at::Tensor further_zeros(int64_t floats) {
  if (!device().is_cuda()) return at::zeros({floats}, here());
  Device& home = device();
  const size_t bytes = static_cast<size_t>(floats) * sizeof(float);
  void* const memory = home.allocate(bytes);
  home.zero(memory, bytes);
  return at::from_blob(
      memory, {floats}, [&home](void* used) { home.release(used); }, here());
}

}  // namespace

JobState::JobState(int shards, uint64_t seed, ShardRange mine) : shards_(shards), mine_(mine), seed_(seed) {}

void JobState::add_model(std::shared_ptr<torch::nn::Module> model, const std::string& prefix,
                         const InitRules& initial) {
  add_model(std::move(model), prefix, initial, prefix);
}

void JobState::add_group(std::shared_ptr<torch::nn::Module> model, const std::string& prefix,
                         const InitRules& initial) {
  next_init_ = 0;
  add_model(std::move(model), prefix, initial, "");
  ++groups_;
}

void JobState::add_model(std::shared_ptr<torch::nn::Module> model, const std::string& prefix, const InitRules& initial,
                         const std::string& names_begin) {
  if (sealed_) throw std::logic_error("JobState is sealed");
  refuse_impure_layers(*model);
  refuse_unregistered_weights(*model);
  if (initial.empty())
    next_init_ = init_weights(*model, seed_, next_init_);
  else
    init_weights(*model, initial, seed_, names_begin);
  models_.push_back({std::move(model), prefix});
}

void JobState::add_target_network(std::shared_ptr<torch::nn::Module> model, const std::string& name) {
  if (sealed_) throw std::logic_error("JobState is sealed");
  target_networks_.push_back({std::move(model), name, {}});
}

at::Tensor JobState::add_replicated(const std::string& name, at::Tensor initial) {
  if (sealed_) throw std::logic_error("JobState is sealed");
  replicated_.push_back({name, initial.contiguous()});
  return replicated_.back().tensor;
}

ShardField JobState::add_shard_field(const std::string& name, std::vector<int64_t> sizes, at::ScalarType dtype,
                                     bool on_device) {
  if (sealed_) throw std::logic_error("JobState is sealed");
  shard_states_.push_back({name, std::move(sizes), dtype, on_device, {}});
  own(mine_);
  return {static_cast<int>(shard_states_.size()) - 1};
}

void JobState::own(ShardRange mine) {
  mine_ = mine;
  ++version_;
  for (ShardArray& array : shard_states_) {
    array.per_shard.clear();
    for (int s = 0; s < mine_.size(); ++s)
      array.per_shard.push_back(
          at::zeros(array.sizes, array.on_device ? here(array.dtype) : at::TensorOptions(array.dtype)));
  }
}

// Parameters in the order of their names; a tied one has its place by the first of them.
void JobState::add_entries(const Model& model, std::vector<at::Tensor>& parameters) {
  const size_t first_of_model = parameters.size();
  for (const auto& item : model.module->named_parameters()) {
    const at::Tensor& parameter = item.value();
    if (parameter.scalar_type() != at::kFloat)
      throw ConfigError(fmt::format("parameter '{}' is not float32", item.key()),
                        "master weights are kept in float32; lower precision is a setting of the run",
                        "build the model in float32 and use --precision bf16");
    const auto same = std::ranges::find_if(parameters, [&](const at::Tensor& p) { return p.is_same(parameter); });
    if (same != parameters.end()) {
      const size_t index = static_cast<size_t>(same - parameters.begin());
      if (groups_ > 0 && index < first_of_model) throw std::logic_error("models of one job can't share a parameter");
      entries_[index].aliases.push_back(joined(model.prefix, item.key()));
      continue;
    }
    entries_.push_back({.name = joined(model.prefix, item.key()),
                        .sizes = parameter.sizes().vec(),
                        .offset = parameter_floats_,
                        .count = parameter.numel(),
                        .channels_last = is_channels_last(parameter)});
    parameters.push_back(parameter);
    parameter_floats_ += padded(parameter.numel());
  }
}

void JobState::add_norms_and_buffers(const Model& model) {
  for (const auto& part : model.module->modules()) {
    if (!part->as<BatchNorm>()) continue;
    const auto norm = std::dynamic_pointer_cast<BatchNormImpl>(part);
    if (std::ranges::any_of(norms_, [&](const BatchNorm& known) { return known.ptr() == norm; })) continue;
    norms_.push_back(BatchNorm(norm));
    statistic_floats_ += 2 * padded(norms_.back()->channels());
  }
  for (auto& item : model.module->named_buffers()) {
    if (std::ranges::any_of(buffers_, [&](const NamedTensor& known) { return known.tensor.is_same(item.value()); }))
      continue;  // of a layer that is registered twice
    item.value().set_data(here(item.value()));
    buffers_.push_back({joined(model.prefix, item.key()), item.value()});
  }
}

void JobState::seal(int64_t recipe_floats, int optimizer_states) {
  if (sealed_) throw std::logic_error("JobState is sealed");
  sealed_ = true;
  recipe_floats_ = recipe_floats;
  std::vector<at::Tensor> parameters;
  for (const Model& model : models_) {
    add_entries(model, parameters);
    add_norms_and_buffers(model);
  }
  refuse_overlaps(entries_, parameters);
  flat_ = at::zeros({parameter_floats_}, here());
  for (size_t i = 0; i < parameters.size(); ++i) {
    at::Tensor view = view_of(flat_, entries_[i]);
    view.copy_(parameters[i].detach());
    parameters[i].set_data(view);
  }
  parameter_views_ = std::move(parameters);
  for (size_t i = 0; i < entries_.size(); ++i) offsets_[parameter_views_[i].unsafeGetTensorImpl()] = entries_[i].offset;
  for (const Model& model : models_) bind_layers(*model.module, model.prefix);
  for (const TargetNetwork& target : target_networks_) bind_layers(*target.module, target.name);
  layers_->job_shards = shards_;

  running_ = at::zeros({statistic_floats_}, here());
  int64_t at_float = 0;
  for (BatchNorm& norm : norms_) {
    for (at::Tensor* buffer : {&norm->running_mean, &norm->running_var}) {
      offsets_[buffer->unsafeGetTensorImpl()] = parameter_floats_ + at_float;
      at::Tensor view = running_.narrow(0, at_float, norm->channels());
      view.copy_(*buffer);
      buffer->set_data(view);
      at_float += padded(norm->channels());
    }
  }
  for (int s = 0; s < optimizer_states; ++s) optimizer_.push_back(at::zeros({parameter_floats_}, here()));

  for (TargetNetwork& target : target_networks_) {
    target.flat = flat_.clone();
    std::vector<at::Tensor> named = once_each(*target.module);
    if (named.size() != entries_.size())
      throw std::logic_error("target network '" + target.name + "' has another layout");
    for (size_t i = 0; i < entries_.size(); ++i) {
      named[i].set_requires_grad(false);
      named[i].set_data(view_of(target.flat, entries_[i]));
    }
  }
  contribution(0);
  use_contribution(0);
}

std::string JobState::tensor_text(int64_t tensor) const {
  if (tensor >= static_cast<int64_t>(entries_.size())) return "the batch-norm statistics";
  return fmt::format("the gradient of '{}'", entries_[tensor].name);
}

int64_t JobState::tensor_at(int64_t offset) const {
  if (offset >= parameter_floats_) return static_cast<int64_t>(entries_.size());
  const auto after = std::upper_bound(entries_.begin(), entries_.end(), offset,
                                      [](int64_t at, const ParameterEntry& entry) { return at < entry.offset; });
  return after - entries_.begin() - 1;
}

std::span<float> JobState::parameters() const { return floats_of(flat_); }
std::span<float> JobState::running_statistics() const { return floats_of(running_); }
std::span<float> JobState::optimizer_state(int index) const { return floats_of(optimizer_.at(index)); }
std::span<float> JobState::target_network(int index) const { return floats_of(target_networks_.at(index).flat); }

std::span<float> JobState::contribution(int buffer) {
  if (contributions_.empty()) contributions_.push_back(at::zeros({contribution_floats()}, here()));
  while (static_cast<int>(contributions_.size()) <= buffer)
    contributions_.push_back(further_zeros(contribution_floats()));
  return floats_of(contributions_[buffer]);
}

void JobState::use_contribution(int buffer) {
  if (buffer == bound_) return;
  contribution(buffer);
  bind_contribution(contributions_[buffer]);
  bound_ = buffer;
}

// A gradient that is preset to a view stays one: autograd adds to it in place.
void JobState::bind_contribution(const at::Tensor& flat) {
  for (size_t i = 0; i < entries_.size(); ++i) parameter_views_[i].mutable_grad() = view_of(flat, entries_[i]);
}

// Target networks too: their layers run in passes of the same kind.
void JobState::bind_layers(const torch::nn::Module& model, const std::string& prefix) {
  for (const auto& item : model.named_modules(prefix)) {
    torch::nn::Module& part = *item.value();
    if (auto* const aware = dynamic_cast<ShardAware*>(&part)) {
      aware->bind(layers_, item.key());
      aware_.push_back(aware);
    } else if (plain_layer_.empty() && !part.parameters(/*recurse=*/false).empty()) {
      plain_layer_ = item.key().empty() ? fmt::format("'{}', the model itself,", part.name())
                                        : fmt::format("'{}' ({})", item.key(), part.name());
    }
  }
}

ShardAware* JobState::shard_aware(const std::string& name) {
  const auto found = std::ranges::find_if(aware_, [&](const ShardAware* layer) { return layer->layer_name() == name; });
  return found == aware_.end() ? nullptr : *found;
}

int64_t JobState::offset_of(const at::Tensor& parameter_or_buffer) const {
  const auto found = offsets_.find(parameter_or_buffer.unsafeGetTensorImpl());
  return found == offsets_.end() ? -1 : found->second;
}

bool JobState::in_file_order(const NamedTensor& t) const {
  if (!t.like_parameters) return t.tensor.is_contiguous();
  return std::ranges::none_of(entries_, &ParameterEntry::channels_last);
}

at::Tensor JobState::to_file_order(const NamedTensor& t) const {
  if (!t.like_parameters) return t.tensor.contiguous();
  at::Tensor file = t.tensor.clone();
  for (const ParameterEntry& entry : entries_)
    if (entry.channels_last) row_major_view(file, entry).copy_(view_of(t.tensor, entry));
  return file;
}

void JobState::from_file_order(const NamedTensor& t, const at::Tensor& file) const {
  at::NoGradGuard no_grad;
  at::Tensor(t.tensor).copy_(file);
  if (!t.like_parameters) return;
  for (const ParameterEntry& entry : entries_)
    if (entry.channels_last) view_of(t.tensor, entry).copy_(row_major_view(file, entry));
}

std::vector<NamedTensor> JobState::model_tensors() const {
  std::vector<NamedTensor> tensors;
  for (size_t i = 0; i < entries_.size(); ++i) tensors.push_back({entries_[i].name, parameter_views_[i].detach()});
  for (const NamedTensor& buffer : buffers_) tensors.push_back({buffer.name, buffer.tensor.detach()});
  return tensors;
}

std::vector<NamedTensor> JobState::replicated_state() const {
  std::vector<NamedTensor> tensors;
  for (size_t s = 0; s < optimizer_.size(); ++s)
    tensors.push_back({fmt::format("optimizer.{}", s), optimizer_[s], /*like_parameters=*/true});
  for (const TargetNetwork& target : target_networks_)
    tensors.push_back({"shadow." + target.name, target.flat, /*like_parameters=*/true});
  for (const NamedTensor& t : replicated_) tensors.push_back({"replicated." + t.name, t.tensor});
  return tensors;
}

std::vector<NamedTensor> JobState::shard_state(int shard) const {
  std::vector<NamedTensor> tensors;
  for (const ShardArray& array : shard_states_)
    tensors.push_back({shard_tensor_name(shard, array.name), array.per_shard.at(shard - mine_.first)});
  return tensors;
}

std::vector<NamedTensor> JobState::shard_shape(int shard) const {
  std::vector<NamedTensor> tensors;
  for (const ShardArray& array : shard_states_)
    tensors.push_back({shard_tensor_name(shard, array.name), at::empty({1}, array.dtype).expand(array.sizes)});
  return tensors;
}

std::vector<at::Tensor> JobState::device_fields() const {
  std::vector<at::Tensor> all;
  for (const ShardArray& array : shard_states_)
    if (array.on_device) all.insert(all.end(), array.per_shard.begin(), array.per_shard.end());
  return all;
}

void JobState::begin_evaluation() {
  modes_.clear();
  for (const Model& model : models_) {
    for (const auto& module : model.module->modules()) modes_.emplace_back(module.get(), module->is_training());
    model.module->eval();
  }
}

void JobState::end_evaluation() {
  for (const auto& [module, training] : modes_) module->train(training);  // parents first: each child then has its own
  modes_.clear();
}

}  // namespace tandem
