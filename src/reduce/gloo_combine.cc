#include "reduce/gloo_combine.h"

#include <gloo/common/error.h>
#include <gloo/common/logging.h>
#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <stdexcept>

#include "reduce/exchange_stream.h"
#include "reduce/gloo_guard.h"
#include "reduce/gloo_mesh.h"
#include "reduce/join.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;
using Buffer = gloo::transport::UnboundBuffer;

// A slice travels in blocks: one is reduced and sent on while the next ones come in. Received partials of few blocks at
// a time stay in the cache until they are added; this thread's sends, paced by what comes in, are written by itself and
// not by Gloo's one thread, which has the reading to do.
constexpr int64_t kBlock = 1 << 17;  // floats
constexpr int kWindow = 3;           // blocks on their way
constexpr auto kForever = std::chrono::hours(24 * 365);

// Slots name messages between two members: the collective, what it is, and its index.
enum Kind : uint64_t { kHead, kPartial, kResult, kExchange, kAllReduce };
uint64_t slot_of(uint64_t collective, Kind kind, uint64_t index) {
  return collective << 28 | uint64_t{kind} << 24 | index;
}

// Everything that Gloo throws means that a peer is gone or its connection is.
template <class Act>
auto or_members_changed(const Act& act) {
  try {
    return act();
  } catch (const gloo::Exception&) {
    throw MembersChanged();
  } catch (const gloo::EnforceNotMet&) {
    throw MembersChanged();
  }
}

}  // namespace

struct GlooCombine::Parts {
  // A block of memory that Gloo sends from or receives into, and how many of its operations are not waited for.
  struct Port {
    std::unique_ptr<Buffer> buffer;
    int sends = 0, receives = 0;
  };

  // For one length of vector: kept between steps.
  struct Vectors {
    int64_t length;
    std::vector<std::unique_ptr<Floats>> partials;  // ours
    std::unique_ptr<Floats> others;                 // others' partials of some blocks of our slice
    std::unique_ptr<Floats> result;
    std::unique_ptr<ExactSum<float>> sum;
    std::vector<Port> out;                 // by partial of ours, where it lies
    std::vector<std::vector<bool>> early;  // by member: which blocks of its slice were sent from ready()
    std::vector<Port> blocks;              // of `others`, used in turn
    Port total;
  };

  Parts(int shards, std::vector<ShardRange> all_ranges, std::shared_ptr<gloo::Context> c, uint64_t of_generation,
        int64_t first_sequence, const Watch& w)
      : ranges(std::move(all_ranges)),
        context(std::move(c)),
        me(context->rank),
        members(static_cast<int>(ranges.size())),
        mine(ranges.at(me)),
        tree(shards),
        join(tree, ranges),
        join_doubles(tree, ranges),
        generation(of_generation),
        watch(w),
        guard(w, of_generation),
        member_of(members_of_shards(shards, ranges)),
        sources(join.partials()),
        sequence(first_sequence),
        begun_at(first_sequence),
        inboxes(mine.size()) {
    if (context->size != members) throw std::logic_error("the mesh has another number of members than the plan");
    for (int m = 0; m < members; ++m) salts.push_back(mesh_salt(*context, m));
  }

  void ask() const {
    if (watch.abandoned(generation, sequence)) throw MembersChanged();
  }

  // ---- messages ----

  Port port(void* data, size_t bytes) { return {context->createUnboundBuffer(data, bytes), 0, 0}; }
  void send(Port& p, int to, uint64_t slot, size_t offset, size_t bytes) {
    p.buffer->send(to, salts[to] ^ slot, offset, bytes);
    ++p.sends;
  }
  void receive(Port& p, int from, uint64_t slot, size_t offset, size_t bytes) {
    p.buffer->recv(from, salts[from] ^ slot, offset, bytes);
    ++p.receives;
  }
  void wait(Port& p, int& left, bool (Buffer::*wait_once)(std::chrono::milliseconds), void (Buffer::*abort)()) {
    if (left == 0) return;
    const Clock::time_point start = Clock::now();
    for (; left > 0; --left) {
      guard.during(
          sequence, [&] { return (p.buffer.get()->*wait_once)(kForever); }, [&] { (p.buffer.get()->*abort)(); });
    }
    waited += std::chrono::duration<double>(Clock::now() - start).count();
  }
  void wait_received(Port& p) { wait(p, p.receives, &Buffer::waitRecv, &Buffer::abortWaitRecv); }
  void wait_sent(Port& p) { wait(p, p.sends, &Buffer::waitSend, &Buffer::abortWaitSend); }

  // Starting behind this member, so that not everybody sends to the same one first.
  template <class Act>
  void with_others(const Act& act) {
    for (int k = 1; k < members; ++k) act((me + k) % members);
  }
  struct Block {
    int64_t first, floats;
  };
  int block_count(int owner) const {
    const auto [first, last] = slice_of(now->length, members, owner);
    return static_cast<int>((last - first + kBlock - 1) / kBlock);
  }
  Block block_of(int owner, int block) const {
    const auto [first, last] = slice_of(now->length, members, owner);
    const int64_t at = first + block * kBlock;
    return {at, std::min(kBlock, last - at)};
  }

  // ---- vectors ----

  Vectors& vectors_for(int64_t length) {
    for (auto& v : all_vectors)
      if (v->length == length) return *v;
    auto made = std::make_unique<Vectors>();
    Vectors& v = *made;
    v.length = length;
    if (members == 1) {
      v.sum = std::make_unique<ExactSum<float>>(tree, length);
    } else {
      std::vector<float*> destinations;
      for (int k = 0; k < join.partials(me); ++k) {
        v.partials.push_back(std::make_unique<Floats>(length));
        destinations.push_back(v.partials.back()->data());
      }
      v.sum = std::make_unique<ExactSum<float>>(tree, length, mine.first, mine.last, destinations);
      v.out.resize(join.partials(me));
      v.early.resize(members);
      v.result = std::make_unique<Floats>(length);
      v.total = port(v.result->data(), v.result->bytes());
      const int64_t stride = foreign_partials() * std::min(kBlock, length);
      v.others = std::make_unique<Floats>(kWindow * stride);
      for (int w = 0; w < kWindow; ++w)
        v.blocks.push_back(port(v.others->data() + w * stride, static_cast<size_t>(stride) * 4));
    }
    all_vectors.push_back(std::move(made));
    return v;
  }
  int foreign_partials() const { return join.partials() - join.partials(me); }
  // Which of the partials that come from others it is.
  int foreign_index(int partial) const {
    return partial < join.first_partial(me) ? partial : partial - join.partials(me);
  }

  void receive_partials(int block) {
    const int64_t n = block_of(me, block).floats;
    with_others([&](int from) {
      const int count = join.partials(from);
      for (int k = 0; k < count; ++k)
        receive(now->blocks[block % kWindow], from, slot_of(phase_collective, kPartial, block * count + k),
                static_cast<size_t>(foreign_index(join.first_partial(from) + k) * n) * 4, static_cast<size_t>(n) * 4);
    });
  }
  void post_receives() {
    with_others([&](int from) {
      receive(heads_in, from, slot_of(phase_collective, kHead, 0), from * head_bytes(), head_bytes());
    });
    for (int block = 0; block < std::min(kWindow, block_count(me)); ++block) receive_partials(block);
    with_others([&](int from) {
      for (int block = 0; block < block_count(from); ++block) {
        const Block b = block_of(from, block);
        receive(now->total, from, slot_of(phase_collective, kResult, block), static_cast<size_t>(b.first) * 4,
                static_cast<size_t>(b.floats) * 4);
      }
    });
  }
  void open_partial(size_t k, std::span<const float> values) {
    float* const at = const_cast<float*>(values.data());  // Gloo's buffers serve both directions
    if (!now->out[k].buffer || now->out[k].buffer->ptr != at) now->out[k] = port(at, values.size_bytes());
  }
  void open_partials() {
    const auto mine_now = now->sum->partials();
    for (size_t k = 0; k < mine_now.size(); ++k) open_partial(k, mine_now[k].values);
  }
  void send_early(std::span<const float> vector, int64_t first, int64_t last) {
    open_partial(0, vector);
    with_others([&](int to) {
      std::vector<bool>& done = now->early[to];
      done.resize(block_count(to));
      for (int block = 0; block < block_count(to); ++block) {
        const Block b = block_of(to, block);
        if (done[block] || b.first < first || b.first + b.floats > last) continue;
        done[block] = true;
        send(now->out[0], to, slot_of(phase_collective, kPartial, block), static_cast<size_t>(b.first) * 4,
             static_cast<size_t>(b.floats) * 4);
      }
    });
  }
  void send_partials(int block) {
    const int count = join.partials(me);
    with_others([&](int to) {
      if (block >= block_count(to)) return;
      if (block < static_cast<int>(now->early[to].size()) && now->early[to][block]) return;
      const Block b = block_of(to, block);
      for (int k = 0; k < count; ++k)
        send(now->out[k], to, slot_of(phase_collective, kPartial, block * count + k), static_cast<size_t>(b.first) * 4,
             static_cast<size_t>(b.floats) * 4);
    });
  }
  void reduce_and_send_on(int block) {
    wait_received(now->blocks[block % kWindow]);
    const Block b = block_of(me, block);
    const float* const others = static_cast<const float*>(now->blocks[block % kWindow].buffer->ptr);
    for (int k = 0; k < join.partials(); ++k) {
      const int own = k - join.first_partial(me);
      sources[k] = own >= 0 && own < join.partials(me) ? static_cast<const float*>(now->out[own].buffer->ptr) + b.first
                                                       : others + foreign_index(k) * b.floats;
    }
    join.add(now->result->data() + b.first, sources.data(), b.floats);
    if (block + kWindow < block_count(me)) receive_partials(block + kWindow);
    with_others([&](int to) {
      send(now->total, to, slot_of(phase_collective, kResult, block), static_cast<size_t>(b.first) * 4,
           static_cast<size_t>(b.floats) * 4);
    });
  }
  void exchange_vectors() {
    int blocks = 0;
    for (int m = 0; m < members; ++m) blocks = std::max(blocks, block_count(m));
    for (int block = 0; block < blocks + kWindow; ++block) {
      if (block < blocks) send_partials(block);
      if (block >= kWindow && block - kWindow < block_count(me)) reduce_and_send_on(block - kWindow);
    }
  }

  // ---- heads: counts, maxima, bytes of messages for the receiver ----

  size_t head_bytes() const { return 8 * static_cast<size_t>(layout.counts + layout.maxima + 1); }
  void make_heads() {
    head_out.assign(members * head_bytes() / 8, 0);
    head_in.assign(members * head_bytes() / 8, 0);
    heads_out = port(head_out.data(), head_out.size() * 8);
    heads_in = port(head_in.data(), head_in.size() * 8);
  }
  void send_heads(const ExchangeStream& exchange) {
    with_others([&](int to) {
      int64_t* head = head_out.data() + to * head_bytes() / 8;
      head = std::copy(counts.begin(), counts.end(), head);
      head = std::copy(maxima.begin(), maxima.end(), head);
      *head = static_cast<int64_t>(exchange.part(to).size());
      send(heads_out, to, slot_of(phase_collective, kHead, 0), to * head_bytes(), head_bytes());
    });
  }
  void add_heads() {
    with_others([&](int from) {
      const int64_t* head = head_in.data() + from * head_bytes() / 8;
      for (int64_t i = 0; i < layout.counts; ++i) counts[i] += head[i];
      head += layout.counts;
      for (int64_t i = 0; i < layout.maxima; ++i) maxima[i] = std::max(maxima[i], head[i]);
    });
  }
  int64_t exchange_bytes_from(int member) const { return head_in[(member + 1) * head_bytes() / 8 - 1]; }

  std::vector<ShardRange> ranges;
  std::shared_ptr<gloo::Context> context;
  std::vector<uint64_t> salts;  // by member
  int me, members;
  ShardRange mine;
  SumTree tree;
  Join<float> join;
  Join<double> join_doubles;
  uint64_t generation;
  const Watch& watch;
  Guard guard;
  std::vector<int> member_of;         // by shard
  std::vector<const float*> sources;  // by partial

  int64_t sequence, begun_at;
  uint64_t collectives = 0, phase_collective = 0;
  bool begun = false;
  double waited = 0;

  ContributionLayout layout;
  std::vector<int64_t> counts, maxima;
  std::vector<int64_t> head_out, head_in;
  Port heads_out, heads_in;
  std::vector<std::unique_ptr<Vectors>> all_vectors;
  Vectors* now = nullptr;
  std::vector<ExchangeMessage> outgoing;
  std::vector<Inbox> inboxes;  // by shard of ours
};

GlooCombine::GlooCombine(int shards, std::vector<ShardRange> ranges, std::shared_ptr<gloo::Context> context,
                         uint64_t generation, int64_t first_sequence, const Watch& watch)
    : parts_(
          std::make_unique<Parts>(shards, std::move(ranges), std::move(context), generation, first_sequence, watch)) {}

GlooCombine::~GlooCombine() = default;

void GlooCombine::begin(const ContributionLayout& layout) {
  Parts& p = *parts_;
  p.ask();
  if (p.begun && layout != p.layout) throw std::logic_error("a phase was begun again as another one");
  p.begun_at = p.sequence;
  p.layout = layout;
  p.now = &p.vectors_for(layout.floats);
  p.now->sum->begin();
  for (std::vector<bool>& sent : p.now->early) {
    if (p.begun && !sent.empty()) throw std::logic_error("a phase was begun again when parts of it were sent");
    sent.clear();
  }
  p.counts.assign(layout.counts, 0);
  p.maxima.assign(layout.maxima, 0);
  p.outgoing.clear();
  if (p.begun || p.members == 1) return;
  p.phase_collective = p.collectives++;
  or_members_changed([&] {
    p.make_heads();
    p.post_receives();
  });
  p.begun = true;
}

void GlooCombine::add(int shard, Contribution contribution) {
  Parts& p = *parts_;
  p.ask();
  if (p.layout.floats == 0 || !contribution.floats.empty())
    p.now->sum->add(shard, contribution.floats, contribution.stays);
  for (int64_t i = 0; i < p.layout.counts; ++i) p.counts[i] += contribution.counts[i];
  for (int64_t i = 0; i < p.layout.maxima; ++i) p.maxima[i] = std::max(p.maxima[i], contribution.maxima[i]);
  if (!contribution.messages.empty() && !p.layout.exchange)
    throw std::logic_error("a phase without exchange sent a message");
  for (ExchangeMessage& message : contribution.messages) {
    if (message.to < 0 || message.to >= p.tree.shards())
      throw std::out_of_range("a message to a shard that is not there");
    p.outgoing.push_back(std::move(message));
  }
}

bool GlooCombine::wants_ready(int shard) const {
  const Parts& p = *parts_;
  return p.members > 1 && p.mine.size() == 1 && p.mine.first == shard;
}

void GlooCombine::ready(int shard, std::span<const float> vector, int64_t first, int64_t last) {
  Parts& p = *parts_;
  if (!wants_ready(shard)) return;
  or_members_changed([&] { p.send_early(vector, first, last); });
}

void GlooCombine::add_floats(int shard, std::span<const float> floats, bool stays) {
  parts_->ask();
  if (parts_->layout.floats > 0) parts_->now->sum->add(shard, floats, stays);
}

void GlooCombine::add_partial(int node, std::span<const float> floats, bool stays) {
  parts_->now->sum->add_partial(node, floats, stays);
}

std::vector<int> GlooCombine::subtrees() const { return parts_->tree.cover(parts_->mine.first, parts_->mine.last); }

Total GlooCombine::finish() {
  Parts& p = *parts_;
  p.ask();
  (void)p.now->sum->partials();  // throws if a shard is missing
  for (Inbox& inbox : p.inboxes) inbox.clear();
  ExchangeStream exchange = pack_messages(p.outgoing, p.members, p.member_of, p.me, p.mine, p.inboxes);
  std::span<const float> floats;
  if (p.members == 1) {
    floats = p.now->sum->total();
  } else {
    or_members_changed([&] {
      p.open_partials();
      p.send_heads(exchange);
      Parts::Port exchange_out = p.port(exchange.bytes.data(), exchange.bytes.size());
      p.with_others([&](int to) {
        if (const size_t bytes = exchange.part(to).size())
          p.send(exchange_out, to, slot_of(p.phase_collective, kExchange, 0), exchange.first[to], bytes);
      });
      p.exchange_vectors();
      p.wait_received(p.heads_in);
      p.add_heads();
      std::vector<std::vector<std::byte>> messages(p.members);
      std::vector<Parts::Port> exchange_in(p.members);
      p.with_others([&](int from) {
        if (const int64_t bytes = p.exchange_bytes_from(from)) {
          messages[from].resize(bytes);
          exchange_in[from] = p.port(messages[from].data(), messages[from].size());
          p.receive(exchange_in[from], from, slot_of(p.phase_collective, kExchange, 0), 0, bytes);
        }
      });
      p.with_others([&](int from) { p.wait_received(exchange_in[from]); });
      p.with_others([&](int from) { unpack_messages(messages[from], p.mine, p.inboxes); });
      p.wait_received(p.now->total);
      p.wait_sent(p.heads_out);
      for (Parts::Port& port : p.now->out) p.wait_sent(port);
      p.wait_sent(p.now->total);
      p.wait_sent(exchange_out);
    });
    floats = {p.now->result->data(), static_cast<size_t>(p.layout.floats)};
  }
  for (Inbox& inbox : p.inboxes) inbox.sort();
  p.begun = false;
  ++p.sequence;
  return {floats, p.counts, p.maxima};
}

const Inbox& GlooCombine::inbox(int shard) const {
  const Parts& p = *parts_;
  if (shard < p.mine.first || shard >= p.mine.last) throw std::out_of_range("the inbox of another member's shard");
  return p.inboxes[shard - p.mine.first];
}

void GlooCombine::clear_inboxes() {
  for (Inbox& inbox : parts_->inboxes) inbox.clear();
}

void GlooCombine::all_reduce(std::span<const int> shards, std::span<const std::span<double>> values) {
  Parts& p = *parts_;
  p.ask();
  const int64_t length = values.empty() ? 0 : static_cast<int64_t>(values[0].size());
  ExactSum<double> sum(p.tree, length, p.mine.first, p.mine.last);
  for (size_t i = 0; i < values.size(); ++i) sum.add(shards[i], values[i]);
  std::vector<double> partials(p.join.partials() * length), total(length);
  auto at = [&](int partial) { return partials.data() + partial * length; };
  const auto mine = sum.partials();
  for (size_t k = 0; k < mine.size(); ++k)
    std::copy(mine[k].values.begin(), mine[k].values.end(), at(p.join.first_partial(p.me) + static_cast<int>(k)));
  const uint64_t slot = slot_of(p.collectives++, kAllReduce, 0);
  or_members_changed([&] {
    Parts::Port all = p.port(partials.data(), partials.size() * 8);
    auto offset = [&](int m) { return static_cast<size_t>(p.join.first_partial(m) * length) * 8; };
    auto bytes = [&](int m) { return static_cast<size_t>(p.join.partials(m) * length) * 8; };
    p.with_others([&](int from) { p.receive(all, from, slot, offset(from), bytes(from)); });
    p.with_others([&](int to) { p.send(all, to, slot, offset(p.me), bytes(p.me)); });
    p.wait_received(all);
    p.wait_sent(all);
  });
  std::vector<const double*> sources;
  for (int k = 0; k < p.join.partials(); ++k) sources.push_back(at(k));
  p.join_doubles.add(total.data(), sources.data(), length);
  for (const std::span<double>& v : values) std::copy(total.begin(), total.end(), v.begin());
  ++p.sequence;
}

int64_t GlooCombine::next_sequence() const { return parts_->sequence; }
int64_t GlooCombine::begun_at() const { return parts_->begun_at; }
double GlooCombine::waited_seconds() const { return parts_->waited; }

}  // namespace tandem
