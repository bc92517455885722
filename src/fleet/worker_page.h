// fleet/worker_page.h -- the page of memory that one worker process shares with the one that supervises it.
//
// Each process has its own, so a fenced worker can write to nobody else's. The worker tells where it is (read by the
// launcher at any time, without asking) and pushes the records of its steps; the launcher posts requests and revokes
// generations. It outlives the worker: what a dead one told last is still there.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "reduce/watch.h"

namespace tandem {

enum class Stage : uint32_t { kStarting, kComputing, kCombining, kApplying, kSnapshot, kHolding, kRestoring, kIdle };
const char* stage_name(Stage stage);  // "computing"

// At the next step boundary all members take a snapshot; the one with the highest serial that any of them has seen is
// what all of them follow.
struct SnapshotRequest {
  uint64_t serial = 0;
  bool hold = false;  // and wait there for the next generation
  uint64_t packed() const { return serial << 1 | (hold ? 1 : 0); }
  static SnapshotRequest unpack(uint64_t word) { return {word >> 1, (word & 1) != 0}; }
};

struct WorkerPage {
  static constexpr size_t kRingBytes = 1 << 18;

  // launcher -> worker
  alignas(64) std::atomic<uint64_t> revoked{0};  // revoked generation << 40 | cut + 1: one word, so never torn
  std::atomic<uint64_t> request{0};
  std::atomic<uint64_t> target{0};  // generation << 40 | nth snapshot of it << 8 | buffer to write it into

  // worker -> launcher
  alignas(64) std::atomic<uint64_t> beats{0};  // grows with everything the worker does
  std::atomic<int64_t> step{0};
  std::atomic<uint32_t> stage{0};
  std::atomic<int32_t> phase{-1}, shard{-1};
  std::atomic<uint64_t> generation{0};
  std::atomic<uint64_t> shards_run{0}, compute_ns{0}, snapshot_ns{0}, steps_run{0};
  // Where the time of its steps went (explain/rank_times.h): all of it, the shards without waiting for data, waiting
  // for data, meeting the others, the part of that in which some had not come yet, the update, a GPU at work.
  std::atomic<uint64_t> step_ns{0}, work_ns{0}, load_ns{0}, combine_ns{0}, wait_ns{0}, update_ns{0}, gpu_ns{0};
  std::atomic<uint64_t> operations{0}, counted_steps{0}, operation_ps{0};  // of libtorch; what asking for one costs
  // Ready to run while others had the cores; of the batches that were looked at: making them, and asleep meanwhile.
  std::atomic<uint64_t> delay_ns{0}, made_ns{0}, asleep_ns{0};

  alignas(64) std::atomic<uint64_t> written{0};  // bytes ever pushed into the ring
  alignas(64) std::atomic<uint64_t> taken{0};    // bytes ever taken out
  std::byte ring[kRingBytes];

  void enter(Stage now) {
    stage.store(static_cast<uint32_t>(now), std::memory_order_relaxed);
    beats.fetch_add(1, std::memory_order_relaxed);
  }
  Stage where() const { return static_cast<Stage>(stage.load(std::memory_order_relaxed)); }

  // A record, whole or not at all. False if there is no room: the reader is behind.
  bool push(std::string_view record);
  std::optional<std::string> pop();

  void revoke(uint64_t generation, int64_t cut) {
    revoked.store(generation << 40 | static_cast<uint64_t>(cut + 1), std::memory_order_release);
  }
  // The buffer for the nth snapshot (from 1) of a generation, once the launcher has one free for it.
  void post_target(uint64_t generation, uint64_t nth, unsigned buffer) {
    target.store(generation << 40 | nth << 8 | buffer, std::memory_order_release);
  }
  std::optional<unsigned> target_of(uint64_t generation, uint64_t nth) const {
    const uint64_t word = target.load(std::memory_order_acquire);
    if (word >> 8 != (generation << 32 | nth)) return std::nullopt;
    return static_cast<unsigned>(word & 255);
  }
  bool abandoned(uint64_t generation, int64_t sequence) const {
    const uint64_t word = revoked.load(std::memory_order_acquire);
    return generation <= (word >> 40) && sequence >= static_cast<int64_t>(word & ((uint64_t{1} << 40) - 1));
  }
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

}  // namespace tandem
