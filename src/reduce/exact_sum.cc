#include "reduce/exact_sum.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ranges>
#include <stdexcept>
#include <string>
#include <utility>

#include "kernels/cpu/sums.h"
#include "reduce/stream_copy.h"

namespace tandem {
namespace {

void add_to(Device& device, float* sum, const float* values, int64_t n) {
  const float* inputs[2] = {sum, values};
  device.add_in_order(sum, inputs, 2, n);
}

void copy_to_destination(float* destination, const float* values, int64_t n) {
  if (n >= kStreamFloats)
    stream_copy(destination, values, n);
  else
    std::copy_n(values, n, destination);
}

void copy_to_destination(double* destination, const double* values, int64_t n) { std::copy_n(values, n, destination); }

void add_all(Device& device, float* out, const float* const* inputs, int count, int64_t n) {
  device.add_in_order(out, inputs, count, n);
}

void add_all(Device&, double* out, const double* const* inputs, int count, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    double sum = inputs[0][i];
    for (int k = 1; k < count; ++k) sum += inputs[k][i];
    out[i] = sum;
  }
}

void add_to(Device&, double* sum, const double* values, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] += values[i];
}

}  // namespace

template <class T>
void ExactSum<T>::Free::operator()(T* p) const {
  if (!borrowed) device->release(p);
}

template <class T>
ExactSum<T>::ExactSum(const SumTree& tree, int64_t length, int first, int last, Device& device)
    : tree_(tree), length_(length), device_(&device), tops_(tree.cover(first, last)), pending_(tree.node_count()) {
  for (int id : tops_) pending_[id].top = true;
  for (int id = 0; id < tree.node_count(); ++id) {
    pending_[id].early.resize(tree.node(id).children.size());
    pending_[id].kept.resize(tree.node(id).children.size());
  }
}

// The buffer that a node's first child is copied to becomes the node's sum, and so on up the tree: what is copied for
// the leftmost branch of a top node ends as its sum, and goes to its destination from the start.
template <class T>
ExactSum<T>::ExactSum(const SumTree& tree, int64_t length, int first, int last, std::span<T* const> destinations)
    : ExactSum(tree, length, first, last) {
  if (destinations.size() != tops_.size()) throw std::logic_error("ExactSum: not a destination for each partial");
  for (size_t k = 0; k < tops_.size(); ++k) {
    int node = tops_[k];
    pending_[node].destination = destinations[k];
    while (!tree.node(node).children.empty()) {
      node = tree.node(node).children[0];
      pending_[node].destination = destinations[k];
    }
  }
}

template <class T>
void ExactSum<T>::give_back(Buffer buffer) {
  if (buffer && !buffer.get_deleter().borrowed) free_.push_back(std::move(buffer));
}

template <class T>
void ExactSum<T>::begin() {
  for (Pending& p : pending_) {
    give_back(std::move(p.sum));
    for (Buffer& buffer : p.early) give_back(std::move(buffer));
    std::ranges::fill(p.kept, nullptr);
    p.next = p.present = 0;
    p.given = false;
    p.lent = {};
  }
  // The same additions then use the same memory, phase after phase: graphs have its addresses.
  std::ranges::sort(free_, {}, [](const Buffer& buffer) { return buffer.get(); });
}

template <class T>
typename ExactSum<T>::Buffer ExactSum<T>::take_buffer() {
  if (!free_.empty()) {
    Buffer buffer = std::move(free_.back());
    free_.pop_back();
    return buffer;
  }
  return Buffer(static_cast<T*>(device_->allocate(static_cast<size_t>(length_) * sizeof(T))), Free{device_});
}

template <class T>
typename ExactSum<T>::Buffer ExactSum<T>::copy_of(std::span<const T> values, int node) {
  T* const destination = pending_[node].destination;
  Buffer buffer = destination ? Buffer(destination, Free{device_, true}) : take_buffer();
  if (destination && pending_[node].top)  // nothing will be added to it
    copy_to_destination(destination, values.data(), length_);
  else
    device_->copy(buffer.get(), values.data(), values.size_bytes());
  return buffer;
}

template <class T>
void ExactSum<T>::came_twice(int node) const {
  throw std::logic_error("ExactSum: shard " + std::to_string(tree_.node(node).first) + " came twice");
}

// A child of a node whose children stay where they are: they are all added in one pass once the last one is there.
template <class T>
typename ExactSum<T>::Buffer ExactSum<T>::add_at_once(int node, std::span<const T> values, Buffer owned, bool keep) {
  const SumTree::Node& n = tree_.node(node);
  Pending& parent = pending_[n.parent];
  if (parent.early[n.child_index] || parent.kept[n.child_index]) came_twice(node);
  if (parent.present == 0)
    parent.present = static_cast<int>(std::ranges::count_if(parent.early, [](const Buffer& b) { return bool(b); }));
  if (keep)
    parent.kept[n.child_index] = values.data();
  else
    parent.early[n.child_index] = owned ? std::move(owned) : copy_of(values, node);
  if (++parent.present < static_cast<int>(parent.kept.size())) return {};
  std::vector<const T*> inputs = parent.kept;
  for (size_t k = 0; k < inputs.size(); ++k)
    if (!inputs[k]) inputs[k] = parent.early[k].get();
  Buffer sum = take_buffer();
  add_all(*device_, sum.get(), inputs.data(), static_cast<int>(inputs.size()), length_);
  for (Buffer& buffer : parent.early) give_back(std::move(buffer));
  return sum;
}

// A child whose turn it is, is added at once; one that comes early waits in a buffer.
template <class T>
typename ExactSum<T>::Buffer ExactSum<T>::add_in_turn(int node, std::span<const T> values, Buffer owned) {
  const SumTree::Node& n = tree_.node(node);
  Pending& parent = pending_[n.parent];
  if (n.child_index > 0 && n.child_index == parent.next) {
    add_to(*device_, parent.sum.get(), values.data(), length_);
    give_back(std::move(owned));
    ++parent.next;
  } else {
    parent.early[n.child_index] = owned ? std::move(owned) : copy_of(values, node);
  }
  const int children = static_cast<int>(parent.early.size());
  while (parent.next < children && parent.early[parent.next]) {
    Buffer child = std::move(parent.early[parent.next]);
    if (parent.next == 0) {
      parent.sum = std::move(child);
    } else {
      add_to(*device_, parent.sum.get(), child.get(), length_);
      give_back(std::move(child));
    }
    ++parent.next;
  }
  return parent.next < children ? Buffer() : std::move(parent.sum);
}

// Carries a finished node up the tree as far as its turn reaches. `owned` holds the values when they are ours already.
template <class T>
void ExactSum<T>::deliver(int node, std::span<const T> values, bool stays) {
  if (static_cast<int64_t>(values.size()) != length_) throw std::logic_error("ExactSum: a vector of another length");
  Buffer owned;
  for (;;) {
    const SumTree::Node& n = tree_.node(node);
    Pending& here = pending_[node];
    if (here.given || (!owned && here.next > 0)) came_twice(node);
    here.given = true;
    if (here.top) {
      if (owned)
        here.sum = std::move(owned);
      else if ((n.parent < 0 && !here.destination) || stays)
        here.lent = values;
      else
        here.sum = copy_of(values, node);
      return;
    }
    if (n.parent < 0) throw std::logic_error("ExactSum: a shard outside its range");
    Pending& parent = pending_[n.parent];
    if (parent.given) came_twice(node);
    const bool keep = stays && !owned && parent.next == 0 && !parent.destination;
    owned = keep || parent.present > 0 ? add_at_once(node, values, std::move(owned), keep)
                                       : add_in_turn(node, values, std::move(owned));
    if (!owned) return;
    node = n.parent;
    values = {owned.get(), static_cast<size_t>(length_)};
  }
}

template <class T>
std::vector<typename ExactSum<T>::Partial> ExactSum<T>::partials() const {
  std::vector<Partial> found;
  for (int id : tops_) {
    const Pending& p = pending_[id];
    if (!p.given) {
      const SumTree::Node& n = tree_.node(id);
      throw std::logic_error("ExactSum: shards are missing from " + std::to_string(n.first) + ".." +
                             std::to_string(n.last - 1));
    }
    found.push_back({id, p.sum ? std::span<const T>(p.sum.get(), static_cast<size_t>(length_)) : p.lent});
  }
  return found;
}

template <class T>
std::span<const T> ExactSum<T>::total() const {
  if (tops_.size() != 1 || tops_[0] != tree_.root()) throw std::logic_error("ExactSum: only a part of the tree");
  return partials()[0].values;
}

template <class T>
T* ExactSum<T>::spare(std::span<const Partial> but) const {
  for (const Buffer& buffer : std::views::reverse(free_))
    if (std::ranges::none_of(but, [&](const Partial& p) { return p.values.data() == buffer.get(); }))
      return buffer.get();
  return nullptr;
}

template class ExactSum<float>;
template class ExactSum<double>;

}  // namespace tandem
