#include "fleet/worker_page.h"

#include <algorithm>
#include <cstring>

namespace tandem {
namespace {

void copy_in(std::byte* ring, uint64_t at, const void* from, size_t bytes) {
  const size_t place = at % WorkerPage::kRingBytes, first = std::min(bytes, WorkerPage::kRingBytes - place);
  std::memcpy(ring + place, from, first);
  std::memcpy(ring, static_cast<const std::byte*>(from) + first, bytes - first);
}

void copy_out(const std::byte* ring, uint64_t at, void* to, size_t bytes) {
  const size_t place = at % WorkerPage::kRingBytes, first = std::min(bytes, WorkerPage::kRingBytes - place);
  std::memcpy(to, ring + place, first);
  std::memcpy(static_cast<std::byte*>(to) + first, ring, bytes - first);
}

}  // namespace

const char* stage_name(Stage stage) {
  switch (stage) {
    case Stage::kStarting:
      return "starting";
    case Stage::kComputing:
      return "computing";
    case Stage::kCombining:
      return "combining";
    case Stage::kApplying:
      return "applying";
    case Stage::kSnapshot:
      return "taking a snapshot";
    case Stage::kHolding:
      return "waiting for a plan";
    case Stage::kRestoring:
      return "restoring";
    case Stage::kIdle:
      return "idle";
  }
  return "unknown";
}

bool WorkerPage::push(std::string_view record) {
  const uint32_t length = static_cast<uint32_t>(record.size());
  const uint64_t at = written.load(std::memory_order_relaxed), need = sizeof length + record.size();
  if (need > kRingBytes - (at - taken.load(std::memory_order_acquire))) return false;
  copy_in(ring, at, &length, sizeof length);
  copy_in(ring, at + sizeof length, record.data(), record.size());
  written.store(at + need, std::memory_order_release);
  return true;
}

std::optional<std::string> WorkerPage::pop() {
  const uint64_t at = taken.load(std::memory_order_relaxed), end = written.load(std::memory_order_acquire);
  uint32_t length = 0;
  // A worker gone mad may have written anything here: nothing outside the ring is read, and no more than the ring.
  if (end <= at || end - at < sizeof length || end - at > kRingBytes) return std::nullopt;
  copy_out(ring, at, &length, sizeof length);
  if (length > end - at - sizeof length) return std::nullopt;
  std::string record(length, '\0');
  copy_out(ring, at + sizeof length, record.data(), length);
  taken.store(at + sizeof length + length, std::memory_order_release);
  return record;
}

}  // namespace tandem
