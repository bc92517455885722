#include "reduce/direct_gpu_link.h"

namespace tandem {

void LinkTalk::begin(const ContributionLayout& layout) {
  words_ = static_cast<size_t>(link_.words());
  added_ = 0;
  ContributionLayout wider = layout;
  wider.maxima += static_cast<int64_t>(words_);
  inner_->begin(wider);
}

void LinkTalk::add(int shard, Contribution contribution) {
  if (words_ == 0) return inner_->add(shard, std::move(contribution));
  std::vector<int64_t> maxima(contribution.maxima.begin(), contribution.maxima.end());
  maxima.resize(maxima.size() + words_, 0);
  if (++added_ < shards_here_) {
    contribution.maxima = maxima;
    return inner_->add(shard, std::move(contribution));
  }
  counts_.assign(contribution.counts.begin(), contribution.counts.end());
  maxima_ = std::move(maxima);
  last_ = std::move(contribution);
  last_.counts = counts_;
  last_shard_ = shard;
}

Total LinkTalk::finish() {
  if (words_ == 0) return inner_->finish();
  if (added_ == shards_here_) {  // else inner tells what is missing
    link_.give(std::span(maxima_).last(words_), inner_->next_sequence());
    last_.maxima = maxima_;
    inner_->add(last_shard_, std::move(last_));
  }
  Total total = inner_->finish();
  link_.take(total.maxima.last(words_));
  total.maxima = total.maxima.first(total.maxima.size() - words_);
  return total;
}

}  // namespace tandem
