// reduce/combine_trial.h -- a made-up program of phases, run on any Combine, and what each member saw; for tests only.
//
// Contributions are functions of (seed, phase, shard), so every member makes its own, and LocalCombine makes them all:
// what each member records must be what LocalCombine records for it.
#pragma once

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <functional>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "reduce/combine.h"
#include "reduce/watch.h"

namespace tandem::trial {

struct TrialPhase {
  ContributionLayout layout;
  std::vector<int64_t> all_reduces;  // their lengths
  int messages = 0;                  // at most, by one shard to one shard
  int64_t message_bytes = 0;         // at most
  int64_t sequences() const { return static_cast<int64_t>(all_reduces.size()) + 1; }
};

struct CombineTrial {
  uint64_t seed = 0;
  int shards = 1;
  std::vector<ShardRange> ranges;
  std::vector<TrialPhase> phases;
  int members() const { return static_cast<int>(ranges.size()); }
  int64_t first_sequence_of(int phase) const {
    int64_t sequence = 0;
    for (int p = 0; p < phase; ++p) sequence += phases[p].sequences();
    return sequence;
  }
  int phase_of(int64_t sequence) const {
    int phase = 0;
    while (phase < static_cast<int>(phases.size()) && first_sequence_of(phase + 1) <= sequence) ++phase;
    return phase;
  }
  int64_t max(int64_t ContributionLayout::*length) const {
    int64_t most = 0;
    for (const TrialPhase& p : phases) most = std::max(most, p.layout.*length);
    return most;
  }
};

inline uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

inline void shuffle(std::vector<int>& values, uint64_t seed) {
  for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[mix(seed + i) % i]);
}

// Magnitudes from 1e-8 to 1e8 of both signs: nearly every order of adding rounds differently.
inline float awkward(uint64_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>((bits & 0x807fffff) | (100 + (bits >> 32) % 54) << 23));
}

struct ShardInputs {
  std::vector<float> floats;
  std::vector<int64_t> counts, maxima;
  std::vector<ExchangeMessage> messages;
};

inline ShardInputs given(const CombineTrial& trial, int phase, int shard) {
  const TrialPhase& p = trial.phases[phase];
  const uint64_t key = mix(mix(mix(trial.seed) + phase) + shard);
  ShardInputs g;
  g.floats.resize(p.layout.floats);
  for (size_t i = 0; i < g.floats.size(); ++i) g.floats[i] = awkward(mix(key + i));
  for (int64_t i = 0; i < p.layout.counts; ++i) g.counts.push_back(static_cast<int64_t>(mix(key - 1 - i) >> 20));
  for (int64_t i = 0; i < p.layout.maxima; ++i) g.maxima.push_back(static_cast<int64_t>(mix(key + 77 + i)) >> 8);
  if (p.layout.exchange && p.messages > 0) {
    uint64_t draw = key + 12345;
    for (int n = static_cast<int>(mix(++draw) % (p.messages * trial.shards + 1)); n-- > 0;) {
      ExchangeMessage message{shard, static_cast<int>(mix(++draw) % trial.shards), {}};
      message.row.resize(p.message_bytes ? mix(++draw) % (p.message_bytes + 1) : 0);
      for (size_t i = 0; i < message.row.size(); ++i) message.row[i] = static_cast<std::byte>(mix(draw + i));
      g.messages.push_back(std::move(message));
    }
  }
  return g;
}

// FNV over 8-byte words: equal records mean equal bits.
inline uint64_t hash_bytes(std::span<const std::byte> bytes, uint64_t h = 14695981039346656037u) {
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i, 8);
    h = (h ^ word) * 1099511628211u;
    h ^= h >> 29;
  }
  for (; i < bytes.size(); ++i) h = (h ^ static_cast<uint64_t>(bytes[i])) * 1099511628211u;
  return mix(h + bytes.size());
}

template <class T>
uint64_t hash_of(std::span<const T> values) {
  return hash_bytes(std::as_bytes(values));
}

// What a member saw in one phase.
struct Seen {
  uint64_t floats = 0, counts = 0, maxima = 0, exchange = 0, all_reduces = 0;
  int64_t begun_at = 0, sequence = 0;
  bool operator==(const Seen&) const = default;
};

inline uint64_t hash_of_messages(const Combine& combine, ShardRange range) {
  uint64_t h = 1;
  for (int shard = range.first; shard < range.last; ++shard) {
    for (const ExchangeMessage& message : combine.inbox(shard).messages())
      h = mix(h + hash_bytes(message.row) + 31 * message.from + 977 * message.to);
    h = mix(h + shard);
  }
  return h;
}

// Runs one phase with the shards of `drives`, visited in an order drawn from `visits`. Returns what each of `records`
// would see.
inline std::vector<Seen> run_phase(Combine& combine, const CombineTrial& trial, int phase, ShardRange drives,
                                   std::span<const ShardRange> records, uint64_t visits) {
  const TrialPhase& p = trial.phases[phase];
  Seen seen;
  combine.begin(p.layout);
  seen.begun_at = combine.begun_at();
  std::vector<int> order(drives.size());
  std::iota(order.begin(), order.end(), drives.first);
  if (visits) shuffle(order, visits);
  for (size_t m = 0; m < p.all_reduces.size(); ++m) {
    std::vector<std::vector<double>> values(order.size(), std::vector<double>(p.all_reduces[m]));
    std::vector<std::span<double>> spans;
    for (size_t s = 0; s < order.size(); ++s) {
      const uint64_t key = mix(mix(mix(trial.seed ^ 0xabcdef) + phase * 100 + m) + order[s]);
      for (size_t i = 0; i < values[s].size(); ++i)
        values[s][i] = awkward(mix(key + i)) * (1.0 + 1e-9 * static_cast<double>(mix(key + i) % 1000));
      spans.emplace_back(values[s]);
    }
    combine.all_reduce(order, spans);
    for (const auto& v : values)
      if (v != values[0]) throw std::runtime_error("shards of one member got different sums");
    seen.all_reduces =
        mix(seen.all_reduces + hash_of(std::span<const double>(values.empty() ? std::vector<double>{} : values[0])));
  }
  ShardInputs g;  // the last one stays until the total was read: the only shard of all is its own total
  for (int shard : order) {
    g = given(trial, phase, shard);
    bool stays = shard == order.back() && visits % 2 == 1;
    if (combine.wants_ready(shard) && visits % 3 != 0) {  // from the end, as backward goes; the rest comes with add()
      stays = true;
      const int64_t n = p.layout.floats, rest = static_cast<int64_t>(mix(visits) % 5) * n / 10;
      const std::vector<float> whole = std::exchange(g.floats, std::vector<float>(g.floats.size(), -777.0f));
      for (int64_t last = n; last > rest; last = std::max(rest, last - n / 3 - 1)) {
        const int64_t first = std::max(rest, last - n / 3 - 1);
        std::copy(whole.begin() + first, whole.begin() + last, g.floats.begin() + first);
        combine.ready(shard, g.floats, first, n);
      }
      std::copy(whole.begin(), whole.begin() + rest, g.floats.begin());
    }
    combine.add(shard, {g.floats, g.counts, g.maxima, std::move(g.messages), stays});
  }
  const Total total = combine.finish();
  if (static_cast<int64_t>(total.floats.size()) != p.layout.floats)
    throw std::runtime_error("a total of another length");
  seen.floats = hash_of(total.floats);
  seen.counts = hash_of(total.counts);
  seen.maxima = hash_of(total.maxima);
  seen.sequence = combine.next_sequence();
  std::vector<Seen> all;
  for (const ShardRange& range : records) {
    seen.exchange = hash_of_messages(combine, range);
    all.push_back(seen);
  }
  return all;
}

// [phase][member]
inline std::vector<std::vector<Seen>> expected(const CombineTrial& trial) {
  LocalCombine combine(trial.shards, {{0, trial.shards}});
  std::vector<std::vector<Seen>> all;
  for (int phase = 0; phase < static_cast<int>(trial.phases.size()); ++phase)
    all.push_back(run_phase(combine, trial, phase, {0, trial.shards}, trial.ranges, 0));
  return all;
}

// Random cuts; every member gets a shard.
inline std::vector<ShardRange> random_ranges(int shards, int members, uint64_t seed) {
  std::vector<int> cuts(shards - 1);
  std::iota(cuts.begin(), cuts.end(), 1);
  shuffle(cuts, seed);
  cuts.resize(members - 1);
  cuts.push_back(0);
  cuts.push_back(shards);
  std::sort(cuts.begin(), cuts.end());
  std::vector<ShardRange> ranges;
  for (int m = 0; m < members; ++m) ranges.push_back({cuts[m], cuts[m + 1]});
  return ranges;
}

// Memory that forked children share with the test. T is zeroed, and never destroyed.
template <class T>
class Shared {
 public:
  Shared() {
    void* at = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::runtime_error("mmap");
    memory_ = new (at) T();
  }
  ~Shared() { munmap(memory_, sizeof(T)); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  T* operator->() const { return memory_; }
  T& operator*() const { return *memory_; }

 private:
  T* memory_;
};

constexpr int kMembersChanged = 77;  // a child's exit code

// A child that runs body(); anything thrown becomes its exit code.
inline pid_t start(const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid != 0) return pid;
  alarm(120);  // a test that hangs names itself instead of staying behind
  int code = 0;
  try {
    body();
  } catch (const MembersChanged&) {
    code = kMembersChanged;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "a member failed: %s\n", e.what());
    code = 1;
  }
  _exit(code);
}

// Exit code, or 128 + signal.
inline int end_of(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Waits until a process of ours sleeps, or has ended.
inline void until_asleep_or_gone(pid_t pid) {
  for (;;) {
    std::ifstream status("/proc/" + std::to_string(pid) + "/stat");
    std::string line;
    std::getline(status, line);
    const size_t name_ends = line.rfind(')');
    if (name_ends == std::string::npos || line.size() < name_ends + 3 || line[name_ends + 2] != 'R') return;
    sched_yield();
  }
}

}  // namespace tandem::trial
