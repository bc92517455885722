#include "reduce/shm_combine.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstring>
#include <stdexcept>

#include "base/cores.h"
#include "reduce/exchange_stream.h"
#include "reduce/join.h"
#include "reduce/shm_layout.h"
#include "reduce/stream_copy.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

void copy_past_cache(float* to, const float* from, int64_t n) {
  if (n >= kStreamFloats)
    stream_copy(to, from, n);
  else if (n > 0)
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
}

Bell& bell_of(const SharedMemory& segment) { return *reinterpret_cast<Bell*>(segment.bytes().data()); }

MemberWords& words_of(const SharedMemory& segment, int member) {
  const uint64_t at = sizeof(Bell) + static_cast<uint64_t>(member) * sizeof(MemberWords);
  if (member < 0 || at + sizeof(MemberWords) > segment.bytes().size()) throw std::logic_error("no such member");
  return *reinterpret_cast<MemberWords*>(segment.bytes().data() + at);
}

void ring(Bell& bell) {
  bell.rung.fetch_add(1);
  if (bell.sleepers.load() != 0) syscall(SYS_futex, &bell.rung, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void sleep_until_rung(Bell& bell, uint32_t seen) {
  const timespec longest{0, 20'000'000};
  syscall(SYS_futex, &bell.rung, FUTEX_WAIT, seen, &longest, nullptr, 0);
}

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

}  // namespace

std::optional<int64_t> done_mark(const SharedMemory& segment, int member) {
  return MemberWords::sequence_of(words_of(segment, member).done.load());
}

std::optional<int64_t> close_mark(const SharedMemory& segment, int member) {
  return MemberWords::sequence_of(words_of(segment, member).done.fetch_or(1));
}

void wake_all(const SharedMemory& segment) { ring(bell_of(segment)); }

struct ShmCombine::Parts {
  struct Sums {  // one per distinct vector length: buffers are kept between steps
    int64_t length;
    ExactSum<float> sum;
  };
  struct AllReduceSums {
    int64_t length;
    ExactSum<double> sum;
  };

  Parts(const ShmShape& s, int member, SharedMemory memory, uint64_t of_generation, int64_t first_sequence,
        const Watch& w)
      : shape(s),
        me(member),
        members(static_cast<int>(s.ranges.size())),
        mine(s.ranges.at(member)),
        tree(s.shards),
        join(tree, shape.ranges),
        join_doubles(tree, shape.ranges),
        map(shape, join.partials()),
        segment(std::move(memory)),
        generation(of_generation),
        watch(w),
        member_of(members_of_shards(s.shards, shape.ranges)),
        sequence(first_sequence),
        begun_at(first_sequence),
        inboxes(mine.size()) {
    if (segment.bytes().size() < map.end) throw std::logic_error("the segment is too small for this plan");
    const int partial_count = join.partials();
    partials.resize(partial_count);
    slices.resize(partial_count);
    for (int k = 0; k < partial_count; ++k) partials[k] = at<float>(map.partials + k * map.float_stride);
    // Where members share cores, spinning keeps the one that is waited for from running.
    longest_spin = usable_cores() >= members ? std::chrono::microseconds(100) : std::chrono::microseconds(5);
    spin = std::min<Clock::duration>(longest_spin, std::chrono::microseconds(20));
  }

  template <class T>
  T* at(uint64_t offset) const {
    return reinterpret_cast<T*>(segment.bytes().data() + offset);
  }
  int64_t* counts_of(int member) const { return at<int64_t>(map.heads + member * map.head_stride); }
  int64_t* maxima_of(int member) const { return counts_of(member) + shape.max_counts; }
  uint64_t* exchange_index_of(int member) const {
    return reinterpret_cast<uint64_t*>(maxima_of(member) + shape.max_maxima);
  }
  std::byte* exchange_buffer(int member, uint64_t round) const {
    return at<std::byte>(map.exchanges + (2 * member + round % 2) * map.exchange_stride);
  }
  double* all_reduce_buffer(int partial, uint64_t round) const {
    return at<double>(map.all_reduces + (2 * partial + round % 2) * map.all_reduce_stride);
  }

  // ---- words ----

  void ask() const {
    if (watch.abandoned(generation, sequence)) throw MembersChanged();
  }
  void reach(Point point) const {
    if (call) call(point);
  }

  bool all_published() const {
    for (int m = 0; m < members; ++m)
      if (words_of(segment, m).published.load() < publications) return false;
    return true;
  }
  bool all_done() const {
    for (int m = 0; m < members; ++m)
      if (words_of(segment, m).done.load() < MemberWords::done_word(sequence)) return false;
    return true;
  }
  void publish() {
    ++publications;
    words_of(segment, me).published.store(publications);
    if (all_published()) ring(bell_of(segment));
  }
  // From the value that we left there, so that a closed word stays as it is.
  void mark_done() {
    const uint64_t word = MemberWords::done_word(sequence);
    if (!words_of(segment, me).done.compare_exchange_strong(last_done, word)) throw MembersChanged();
    last_done = word;
    if (all_done()) ring(bell_of(segment));
  }

  template <class Ready>
  void wait(const Ready& ready) {
    if (ready()) return;
    const Clock::time_point start = Clock::now();
    struct Count {
      Clock::time_point start;
      double& seconds;
      ~Count() { seconds += std::chrono::duration<double>(Clock::now() - start).count(); }
    } count{start, waited};
    do {
      for (int i = 0; i < 16; ++i) pause_cpu();
      if (ready()) {
        spin = std::min(spin * 2, longest_spin);
        return;
      }
      ask();
    } while (Clock::now() - start < spin);
    spin = std::max<Clock::duration>(spin / 2, std::chrono::microseconds(2));
    Bell& bell = bell_of(segment);
    struct Asleep {
      std::atomic<uint32_t>& sleepers;
      explicit Asleep(std::atomic<uint32_t>& s) : sleepers(s) { sleepers.fetch_add(1); }
      ~Asleep() { sleepers.fetch_sub(1); }
    } asleep(bell.sleepers);
    for (;;) {
      const uint32_t seen = bell.rung.load();
      if (ready()) return;
      ask();
      sleep_until_rung(bell, seen);
    }
  }
  void wait_for_published() {
    wait([this] { return all_published(); });
  }
  void wait_for_done() {
    wait([this] { return all_done(); });
  }

  // ---- the three forms ----

  ExactSum<float>& sum_for(int64_t length) {
    for (auto& s : sums)
      if (s->length == length) return s->sum;
    if (members == 1) {
      sums.push_back(std::unique_ptr<Sums>(new Sums{length, {tree, length}}));
    } else {
      const std::span<float* const> destinations(partials.data() + join.first_partial(me), join.partials(me));
      sums.push_back(std::unique_ptr<Sums>(new Sums{length, {tree, length, mine.first, mine.last, destinations}}));
    }
    return sums.back()->sum;
  }
  ExactSum<double>& all_reduce_sum_for(int64_t length) {
    for (auto& s : all_reduces)
      if (s->length == length) return s->sum;
    all_reduces.push_back(
        std::unique_ptr<AllReduceSums>(new AllReduceSums{length, {tree, length, mine.first, mine.last}}));
    return all_reduces.back()->sum;
  }

  void write_head(const ExchangeStream& exchange) {
    std::copy(counts.begin(), counts.end(), counts_of(me));
    std::copy(maxima.begin(), maxima.end(), maxima_of(me));
    if (layout.exchange) std::copy(exchange.first.begin(), exchange.first.end(), exchange_index_of(me));
  }
  void add_heads() {
    for (int m = 0; m < members; ++m) {
      if (m == me) continue;
      for (int64_t i = 0; i < layout.counts; ++i) counts[i] += counts_of(m)[i];
      for (int64_t i = 0; i < layout.maxima; ++i) maxima[i] = std::max(maxima[i], maxima_of(m)[i]);
    }
  }
  // A vector that was lent is copied to where others read it, but for the slice that only we read.
  void place_lent(const std::vector<ExactSum<float>::Partial>& given) {
    const auto [first, last] = slice_of(layout.floats, members, me);
    own.clear();
    for (size_t k = 0; k < given.size(); ++k) {
      const float* values = given[k].values.data();
      float* destination = partials[join.first_partial(me) + k];
      own.push_back(values);
      if (values == destination) continue;
      copy_past_cache(destination, values, first);
      copy_past_cache(destination + last, values + last, layout.floats - last);
    }
  }
  void reduce_slice() {
    const auto [first, last] = slice_of(layout.floats, members, me);
    if (first == last) return;
    for (size_t k = 0; k < partials.size(); ++k) slices[k] = partials[k] + first;
    for (size_t k = 0; k < own.size(); ++k) slices[join.first_partial(me) + k] = own[k] + first;
    join.add(at<float>(map.result) + first, slices.data(), last - first);
  }

  void write_exchange(const ExchangeStream& exchange, uint64_t round) {
    const uint64_t first = std::min<uint64_t>(round * map.exchange_stride, exchange.bytes.size());
    const uint64_t last = std::min<uint64_t>(first + map.exchange_stride, exchange.bytes.size());
    if (first < last) std::memcpy(exchange_buffer(me, round), exchange.bytes.data() + first, last - first);
  }
  // After the wait that made everybody's round 0 visible.
  void collect_exchange(const ExchangeStream& exchange) {
    struct Sender {
      uint64_t first, last;  // our part of its stream
      std::vector<std::byte> so_far;
    };
    std::vector<Sender> senders(members);
    uint64_t longest = 0;
    for (int m = 0; m < members; ++m) {
      const uint64_t* index = exchange_index_of(m);
      senders[m] = {index[me], index[me + 1], {}};
      longest = std::max(longest, index[members]);
      if (senders[m].last < senders[m].first)
        throw std::runtime_error("the exchange index of another worker makes no sense");
    }
    const uint64_t rounds = longest / map.exchange_stride + (longest % map.exchange_stride ? 1 : 0);
    for (uint64_t round = 0; round < rounds; ++round) {
      if (round > 0) {
        write_exchange(exchange, round);
        publish();
        wait_for_published();
      }
      const uint64_t begin = round * map.exchange_stride, end = begin + map.exchange_stride;
      for (int m = 0; m < members; ++m) {
        Sender& sender = senders[m];
        const uint64_t first = std::max(sender.first, begin), last = std::min(sender.last, end);
        if (m == me || first >= last) continue;
        const std::span<const std::byte> here(exchange_buffer(m, round) + (first - begin), last - first);
        if (rounds == 1)
          unpack_messages(here, mine, inboxes);
        else
          sender.so_far.insert(sender.so_far.end(), here.begin(), here.end());
      }
    }
    if (rounds > 1)
      for (Sender& sender : senders) unpack_messages(sender.so_far, mine, inboxes);
  }

  ShmShape shape;
  int me, members;
  ShardRange mine;
  SumTree tree;
  Join<float> join;
  Join<double> join_doubles;
  ShmLayout map;
  SharedMemory segment;
  uint64_t generation;
  const Watch& watch;
  std::vector<int> member_of;  // by shard
  std::vector<float*> partials;
  std::vector<const float*> slices, own;  // own: our partials, in their places or where they were lent

  int64_t sequence, begun_at;
  uint64_t publications = 0, all_reduce_rounds = 0, last_done = 0;
  Clock::duration spin, longest_spin;
  double waited = 0, late = 0;
  std::function<void(Point)> call;

  ContributionLayout layout;
  std::vector<std::unique_ptr<Sums>> sums;
  std::vector<std::unique_ptr<AllReduceSums>> all_reduces;
  ExactSum<float>* now = nullptr;
  std::vector<int64_t> counts, maxima;
  std::vector<ExchangeMessage> outgoing;
  std::vector<Inbox> inboxes;  // by shard of ours
  std::vector<double> all_reduce_total;
};

ShmCombine::ShmCombine(const ShmShape& shape, int me, SharedMemory segment, uint64_t generation, int64_t first_sequence,
                       const Watch& watch)
    : parts_(std::make_unique<Parts>(shape, me, std::move(segment), generation, first_sequence, watch)) {}

ShmCombine::~ShmCombine() = default;

void ShmCombine::begin(const ContributionLayout& layout) {
  Parts& p = *parts_;
  p.ask();
  if (layout.floats > p.shape.max_floats || layout.counts > p.shape.max_counts || layout.maxima > p.shape.max_maxima ||
      (layout.exchange && !p.shape.exchange))
    throw std::logic_error("a phase is larger than its segment");
  p.layout = layout;
  p.begun_at = p.sequence;
  p.now = &p.sum_for(layout.floats);
  p.now->begin();
  p.counts.assign(layout.counts, 0);
  p.maxima.assign(layout.maxima, 0);
  p.outgoing.clear();
}

void ShmCombine::add(int shard, Contribution contribution) {
  Parts& p = *parts_;
  p.ask();
  if (p.layout.floats == 0 || !contribution.floats.empty()) p.now->add(shard, contribution.floats, contribution.stays);
  for (int64_t i = 0; i < p.layout.counts; ++i) p.counts[i] += contribution.counts[i];
  for (int64_t i = 0; i < p.layout.maxima; ++i) p.maxima[i] = std::max(p.maxima[i], contribution.maxima[i]);
  if (!contribution.messages.empty() && !p.layout.exchange)
    throw std::logic_error("a phase without exchange sent a message");
  for (ExchangeMessage& message : contribution.messages) {
    if (message.to < 0 || message.to >= p.shape.shards)
      throw std::out_of_range("a message to a shard that is not there");
    p.outgoing.push_back(std::move(message));
  }
}

void ShmCombine::add_floats(int shard, std::span<const float> floats, bool stays) {
  parts_->ask();
  if (parts_->layout.floats > 0) parts_->now->add(shard, floats, stays);
}

void ShmCombine::add_partial(int node, std::span<const float> floats, bool stays) {
  parts_->now->add_partial(node, floats, stays);
}

std::vector<int> ShmCombine::subtrees() const { return parts_->tree.cover(parts_->mine.first, parts_->mine.last); }

Total ShmCombine::finish() {
  Parts& p = *parts_;
  p.ask();
  std::span<const float> floats;
  if (p.members == 1) floats = p.now->total();
  if (p.members > 1) p.place_lent(p.now->partials());  // throws if a shard is missing
  for (Inbox& inbox : p.inboxes) inbox.clear();
  const ExchangeStream exchange = pack_messages(p.outgoing, p.members, p.member_of, p.me, p.mine, p.inboxes);
  p.reach(Point::kBeforePublish);
  if (p.members > 1) {
    p.write_head(exchange);
    if (p.layout.exchange) p.write_exchange(exchange, 0);
    p.publish();
    p.reach(Point::kPublished);
    const double waited_before = p.waited;
    p.wait_for_published();
    p.late += p.waited - waited_before;
    p.reduce_slice();
    p.add_heads();
    if (p.layout.exchange) p.collect_exchange(exchange);
    floats = {p.at<float>(p.map.result), static_cast<size_t>(p.layout.floats)};
  }
  p.reach(Point::kReduced);
  p.mark_done();
  p.reach(Point::kDone);
  p.wait_for_done();
  for (Inbox& inbox : p.inboxes) inbox.sort();
  ++p.sequence;
  return {floats, p.counts, p.maxima};
}

// A word that was closed stays so: the next begin() learns of it.
void ShmCombine::completed() {
  Parts& p = *parts_;
  for (Inbox& inbox : p.inboxes) inbox.clear();
  const uint64_t word = MemberWords::done_word(p.sequence);
  if (words_of(p.segment, p.me).done.compare_exchange_strong(p.last_done, word)) p.last_done = word;
  ++p.sequence;
}

const Inbox& ShmCombine::inbox(int shard) const {
  const Parts& p = *parts_;
  if (shard < p.mine.first || shard >= p.mine.last) throw std::out_of_range("the inbox of another member's shard");
  return p.inboxes[shard - p.mine.first];
}

void ShmCombine::clear_inboxes() {
  for (Inbox& inbox : parts_->inboxes) inbox.clear();
}

void ShmCombine::all_reduce(std::span<const int> shards, std::span<const std::span<double>> values) {
  Parts& p = *parts_;
  p.ask();
  const int64_t length = values.empty() ? 0 : static_cast<int64_t>(values[0].size());
  ExactSum<double>& sum = p.all_reduce_sum_for(length);
  sum.begin();
  for (size_t i = 0; i < values.size(); ++i) sum.add(shards[i], values[i]);
  const auto mine = sum.partials();
  p.all_reduce_total.resize(length);
  p.reach(Point::kBeforePublish);
  if (p.members == 1) {
    std::copy(mine[0].values.begin(), mine[0].values.end(), p.all_reduce_total.begin());
    p.mark_done();
  }
  std::vector<const double*> sources(p.join.partials());
  for (int64_t first = 0; p.members > 1 && (first == 0 || first < length); first += kAllReduceDoubles) {
    const int64_t n = std::min(kAllReduceDoubles, length - first);
    const uint64_t round = p.all_reduce_rounds++;
    for (size_t k = 0; k < mine.size(); ++k)
      std::copy_n(mine[k].values.data() + first, n,
                  p.all_reduce_buffer(p.join.first_partial(p.me) + static_cast<int>(k), round));
    if (first + n < length) {
      p.publish();
      p.wait_for_published();
    } else {  // one word says both, or a member that dies between the two would be waited for, and never come
      p.mark_done();
      p.reach(Point::kDone);
      p.wait_for_done();
    }
    for (int k = 0; k < p.join.partials(); ++k) sources[k] = p.all_reduce_buffer(k, round);
    p.join_doubles.add(p.all_reduce_total.data() + first, sources.data(), n);
  }
  for (const std::span<double>& v : values) std::copy(p.all_reduce_total.begin(), p.all_reduce_total.end(), v.begin());
  ++p.sequence;
}

int64_t ShmCombine::next_sequence() const { return parts_->sequence; }
int64_t ShmCombine::begun_at() const { return parts_->begun_at; }
double ShmCombine::waited_seconds() const { return parts_->waited; }
double ShmCombine::late_seconds() const { return parts_->late; }
void ShmCombine::at_points(std::function<void(Point)> call) { parts_->call = std::move(call); }

}  // namespace tandem
