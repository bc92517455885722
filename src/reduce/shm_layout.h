// reduce/shm_layout.h -- where things lie in the segment of a generation (shm_combine.h); computed alike by everybody.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "reduce/shm_combine.h"

namespace tandem {

inline constexpr int64_t kAllReduceDoubles = 8192;  // of one partial; a longer all-reduce goes in rounds

// ---- the words of a segment; all zero at the start ----

struct alignas(128) Bell {
  std::atomic<uint32_t> rung{0};
  alignas(64) std::atomic<uint32_t> sleepers{0};  // one that died asleep stays counted: that costs a call, no more
};

struct alignas(128) MemberWords {
  std::atomic<uint64_t> published{0};  // how many times: finish(), rounds of an exchange, chunks of an all-reduce
  alignas(64) std::atomic<uint64_t> done{0};  // (sequence number + 1) << 1 | closed

  static uint64_t done_word(int64_t sequence) { return static_cast<uint64_t>(sequence + 1) << 1; }
  static std::optional<int64_t> sequence_of(uint64_t word) {
    return word >> 1 ? std::optional(static_cast<int64_t>(word >> 1) - 1) : std::nullopt;
  }
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

struct ShmLayout {
  uint64_t heads, result, partials, all_reduces, exchanges, peers, end;
  uint64_t head_stride, float_stride, all_reduce_stride, exchange_stride;

  ShmLayout(const ShmShape& shape, int partial_count);
};

}  // namespace tandem
