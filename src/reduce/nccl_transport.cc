#include "reduce/nccl_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "reduce/gpu_combine.h"
#include "reduce/nccl_link.h"

namespace tandem {
namespace {

constexpr int kMostFruitless = 2;

uint64_t mixed(uint64_t tag, uint64_t with) {
  uint64_t x = (tag ^ with) + 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return ((x ^ x >> 31) & NcclLink::kTagMask) | 1;
}

}  // namespace

NcclTransport::NcclTransport(Device& device, NcclGpu gpu, Options options)
    : device_(device), gpu_(std::move(gpu)), options_(std::move(options)) {
  library_ = NcclLibrary::open(options_.library, &refused_);
}

NcclTransport::~NcclTransport() = default;

void NcclTransport::drop() {
  comm_.reset();  // aborts
  tag_ = 0;
  under_way_ = false;
}

// Decided by each member alone, from the two lists of members and the state of its own communicator. Where they came to
// different ends, their tags differ, and all form a new one.
void NcclTransport::take_over(const LinkMembers& members) {
  if (std::exchange(taken_over_, members.generation) == members.generation || !comm_) return;
  if (agreed_) fruitless_ = sums_ > 0 ? 0 : fruitless_ + under_way_;
  std::vector<int> without, kept;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    const bool stays = std::find(members.ranks.begin(), members.ranks.end(), ranks_[r]) != members.ranks.end();
    stays ? kept.push_back(ranks_[r]) : without.push_back(static_cast<int>(r));
  }
  const bool usable = agreed_ && tag_ != 0 && kept == members.ranks && kept.size() > 1;
  if (usable && without.empty() && !under_way_ && comm_->result() == kNcclSuccess) {
    tag_ = mixed(tag_, members.generation);
  } else if (usable && !without.empty() && library_->comm_shrink) {
    options_.log(fmt::format("NCCL: {} of {} members go on without the others", kept.size(), ranks_.size()));
    comm_->shrink(without);
    under_way_ = false;
    if (comm_->result() == kNcclSuccess || comm_->result() == kNcclInProgress)
      tag_ = mixed(tag_, members.generation);
    else
      drop();
  } else {
    drop();
  }
  if (comm_) ranks_ = kept;
  agreed_ = false;
}

std::unique_ptr<DirectGpuLink> NcclTransport::link(const LinkMembers& members, const Watch& watch) {
  take_over(members);
  if (members.ranges.size() == 1) {
    drop();
    return nullptr;
  }
  if (fruitless_ >= kMostFruitless && refused_.empty())
    refused_ = fmt::format("{} communicators in a row came to nothing", fruitless_);
  return std::make_unique<NcclLink>(*this, members, watch);
}

std::unique_ptr<Combine> NcclTransport::combine(const LinkMembers& members, std::unique_ptr<Combine> inner,
                                                const Watch& watch) {
  std::unique_ptr<DirectGpuLink> link = this->link(members, watch);
  const ShardRange mine = members.ranges.at(static_cast<size_t>(members.me));
  if (!link) return std::make_unique<GpuCombine>(members.shards, mine, std::move(inner), device_);
  auto talk = std::make_unique<LinkTalk>(std::move(inner), *link, mine.size());
  return std::make_unique<GpuCombine>(members.shards, mine, std::move(talk), device_, std::move(link));
}

}  // namespace tandem
