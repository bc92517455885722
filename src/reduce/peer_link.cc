#include "reduce/peer_link.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "base/errors.h"
#include "kernels/tree_kernels.h"
#include "reduce/link_pause.h"

namespace tandem {
namespace {

constexpr int64_t kLine = 16;        // floats
constexpr int64_t kPattern = kLine;  // floats at both ends of an area
constexpr int64_t kFlags = kMostPeerBlocks * sizeof(PeerFlag) / sizeof(float);
static_assert(kFlags % kLine == 0);

enum PeerWord { kPeerRefuser, kPeerUnready };

// What the owner of an area writes at its ends, and nobody else has written there by chance.
std::vector<float> pattern_of(uint64_t generation, int member) {
  std::vector<float> pattern(kPattern);
  uint64_t x = generation * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(member) + 1;
  for (float& value : pattern) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    value = static_cast<float>(x >> 40);
  }
  return pattern;
}

}  // namespace

PeerSumLink::PeerSumLink(LinkMembers members, PeerWords words, std::unique_ptr<PeerMail> mail, Gpu gpu, Options options,
                         int64_t most_floats, const Watch& watch)
    : members_(std::move(members)),
      words_(words),
      mail_(std::move(mail)),
      gpu_(std::move(gpu)),
      options_(std::move(options)),
      watch_(watch),
      tree_(members_.shards),
      join_(tree_, members_.ranges),
      most_floats_(most_floats),
      // Not a whole number of pages: vectors that are would compete for the same cache sets.
      stride_((most_floats + kLine - 1) / kLine * kLine + 5 * kLine),
      peers_(members_.ranges.size()) {
  const int depth = tree_depth(join_.merges().data(), join_.partials());
  if (this->members() > kMostPeers || join_.partials() > kMostPeerPartials || depth > kMostPeerPending)
    refused_ = fmt::format("a kernel sums up to {} members, {} partial sums, {} of them at once; here are {}, {}, {}",
                           kMostPeers, kMostPeerPartials, kMostPeerPending, this->members(), join_.partials(), depth);
  words_pinned_ = pin_for_kernels(gpu_.device, words_.memory);
  if (!words_pinned_ && refused_.empty()) refused_ = kNotPinned;
  offer();
}

PeerSumLink::~PeerSumLink() { retire(); }

void PeerSumLink::retire() {
  stage_ = Stage::kHost;
  peers_.clear();
  on_gpu_.reset();
  on_host_.reset();
  if (std::exchange(words_pinned_, false)) gpu_.device.unpin(words_.memory.data());
}

// ---- getting ready ----

// An area: partial sums, the slice, flags, a pattern.
int64_t PeerSumLink::flags_at(int member) const {
  const int64_t slice = (most_floats_ / members() / kLine + 2) * kLine;
  return join_.partials(member) * stride_ + slice;
}

uint64_t PeerSumLink::area_bytes(int member) const {
  return static_cast<uint64_t>(flags_at(member) + kFlags + kPattern) * sizeof(float);
}

// The host's memory is written by the host: to the GPU it would be a copy to itself.
void PeerSumLink::write(PeerArea& area, size_t at, std::span<const float> values) const {
  if (area.on_gpu())
    gpu_.device.from_host(area.data() + at, values.data(), values.size_bytes());
  else
    std::ranges::copy(values, area.data() + at);
}

std::vector<float> PeerSumLink::read(const PeerArea& area, size_t at) const {
  std::vector<float> found(kPattern);
  if (area.on_gpu())
    gpu_.device.to_host(found.data(), area.data() + at, kPattern * sizeof(float));
  else
    std::copy_n(area.data() + at, kPattern, found.data());
  return found;
}

std::unique_ptr<PeerArea> PeerSumLink::made(PeerMemory& memory) const {
  const uint64_t bytes = area_bytes(members_.me);
  std::unique_ptr<PeerArea> area = memory.make(bytes);
  const std::vector<float> pattern = pattern_of(members_.generation, members_.me);
  for (const size_t at : {size_t{0}, bytes / sizeof(float) - kPattern}) write(*area, at, pattern);
  write(*area, static_cast<size_t>(flags_at(members_.me)), std::vector<float>(kFlags));
  gpu_.device.wait();
  return area;
}

std::unique_ptr<PeerArea> PeerSumLink::mapped(PeerMemory& memory, int member, PeerLetter letter) const {
  const uint64_t bytes = area_bytes(member);
  if (letter.bytes != bytes) {
    if (letter.fd >= 0) close(letter.fd);
    throw std::runtime_error("its area has another size than ours would have");
  }
  std::unique_ptr<PeerArea> area = memory.map(letter.fd, bytes);
  const std::vector<float> pattern = pattern_of(members_.generation, member);
  for (const size_t at : {size_t{0}, bytes / sizeof(float) - kPattern})
    if (read(*area, at) != pattern) throw std::runtime_error("what is read there is not what its owner wrote");
  return area;
}

void PeerSumLink::offer() {
  PeerLetter letter;
  letter.kind = PeerLetter::Kind::kOffer;
  letter.bytes = area_bytes(members_.me);
  letter.blocks = gpu_.blocks;
  letter.steps = gpu_.steps;
  letter.gpu = gpu_.takes_turns;
  if (gpu_.device_memory && refused_.empty()) {
    try {
      on_gpu_ = made(*gpu_.device_memory);
      letter.has_area = true;
      letter.fd = on_gpu_->fd();
    } catch (const std::exception& refusal) {
      no_area_ = refusal.what();
    }
  }
  for (int m = 0; m < members(); ++m)
    if (m != members_.me) mail_->send(m, letter);
}

void PeerSumLink::look() {
  for (int m = 0; m < members(); ++m)
    while (m != members_.me) {
      std::optional<PeerLetter> letter = mail_->receive(m);
      if (!letter) break;
      hear(m, std::move(*letter));
    }
  ready_ = std::ranges::all_of(peers_, [this](const Peer& peer) {
    return &peer == &peers_[static_cast<size_t>(members_.me)] || (peer.area && peer.answered);
  });
}

void PeerSumLink::hear(int member, PeerLetter letter) {
  Peer& peer = peers_[static_cast<size_t>(member)];
  const int rank = members_.ranks.at(static_cast<size_t>(member));
  try {
    switch (letter.kind) {
      case PeerLetter::Kind::kOffer: {
        peer.blocks = std::clamp(letter.blocks, 1, kMostPeerBlocks);
        peer.steps = letter.steps;
        peer.host = true;
        if (options_.asked_for.empty() && letter.gpu != 0 && letter.gpu == gpu_.takes_turns)
          refused_ = fmt::format("rank {} is on the same GPU, and without MPS they take turns", rank);
        if (letter.has_area && gpu_.device_memory) {
          try {
            peer.area = mapped(*gpu_.device_memory, member, std::move(letter));
            peer.host = false;
          } catch (const std::exception& refusal) {
            peer.why_host = refusal.what();
            options_.log(fmt::format("the memory of rank {}'s GPU is not reached from here: {}", rank, refusal.what()));
          }
        } else {
          peer.why_host = gpu_.device_memory ? "its GPU lends none" : "asked for";
          if (letter.fd >= 0) close(letter.fd);
        }
        PeerLetter answer;
        answer.kind = PeerLetter::Kind::kReads;
        answer.host = peer.host;
        mail_->send(member, answer);
        break;
      }
      case PeerLetter::Kind::kReads:
        peer.reads_host = letter.host;
        if (letter.host) send_host_area(member);
        peer.answered = true;
        break;
      case PeerLetter::Kind::kHostArea:
        peer.area = mapped(*gpu_.host_memory, member, std::move(letter));
        break;
    }
  } catch (const std::exception& refusal) {
    refused_ = fmt::format("memory shared with rank {}: {}", rank, refusal.what());
  }
}

void PeerSumLink::send_host_area(int member) {
  if (!on_host_) on_host_ = made(*gpu_.host_memory);
  mail_->send(member, {.kind = PeerLetter::Kind::kHostArea, .bytes = area_bytes(members_.me), .fd = on_host_->fd()});
}

void PeerSumLink::give(std::span<int64_t> words, int64_t sequence) {
  look();
  const double begin = options_.now(), end = begin + (options_.waits ? kLinkFormWaitSeconds : 0);
  while (forms() && options_.now() < end) {
    ask(sequence);
    pause_for_link(begin);
    look();
  }
  // What passed before anybody waited here, as while a first phase was computed, is nobody's fault.
  waited_ += options_.now() - begin;
  if (forms() && waited_ >= options_.form_seconds)
    refused_ = fmt::format("the workers had not mapped each other's memory after {:g} s", options_.form_seconds);
  if (!refused_.empty()) words[kPeerRefuser] = members() - members_.me;
  words[kPeerUnready] = ready_ ? 0 : 1;
}

void PeerSumLink::take(std::span<const int64_t> largest) {
  if (largest[kPeerRefuser] != 0) return use_host(static_cast<int>(members() - largest[kPeerRefuser]));
  if (largest[kPeerUnready] == 0) begin_carrying();
}

void PeerSumLink::begin_carrying() {
  stage_ = Stage::kCarrying;
  blocks_ = gpu_.blocks;
  all_queue_steps_ = gpu_.steps;
  std::vector<int> direct, by_host;
  std::vector<Way> ways;
  bool somebody_reaches_ours = false, somebody_does_not = false;
  for (int m = 0; m < members(); ++m) {
    if (m == members_.me) continue;
    const Peer& peer = peers_[static_cast<size_t>(m)];
    blocks_ = std::min(blocks_, peer.blocks);
    all_queue_steps_ = all_queue_steps_ && peer.steps;
    (peer.host ? by_host : direct).push_back(members_.ranks[static_cast<size_t>(m)]);
    ways.push_back({members_.ranks[static_cast<size_t>(m)], !peer.host, peer.why_host});
    (peer.reads_host ? somebody_does_not : somebody_reaches_ours) = true;
  }
  if (!somebody_reaches_ours) on_gpu_.reset();
  if (!somebody_does_not) on_host_.reset();
  const std::string reads = fmt::format("reads {} on their GPUs, {} in pinned host memory", direct, by_host);
  options_.log(fmt::format("sums by kernels over {} members, {} blocks: {}{}", members(), blocks_, reads,
                           no_area_.empty() ? "" : "; ours: " + no_area_));
  if (options_.tell) options_.tell(ways);
}

void PeerSumLink::use_host(int refuser) {
  retire();
  if (refuser != members_.me) {
    options_.log("no sums by kernels: another worker can't make them, and says why");
    return;
  }
  if (!options_.asked_for.empty())
    throw ConfigError(fmt::format("the GPUs can't sum by kernels: {}", refused_),
                      options_.asked_for + " allows nothing else",
                      "leave TANDEM_PLANE out: other ways give the same bits, more slowly");
  options_.note(fmt::format("the GPUs don't sum by kernels: {}", refused_));
}

// ---- summing ----

void PeerSumLink::ask(int64_t sequence) const {
  if (watch_.abandoned(members_.generation, sequence)) throw MembersChanged();
}

PeerSum PeerSumLink::arguments(const QueuedSum& sum) const {
  PeerSum s;
  s.members = members();
  s.me = members_.me;
  s.blocks = peer_blocks(sum.floats, s.members, blocks_);
  s.ahead = sum.ahead;
  s.bits = sum.bits;
  s.generation = members_.generation;
  s.floats = sum.floats;
  s.stride = stride_;
  s.wait_ns = options_.wait_ns;
  s.total = sum.total;
  s.flags = words_.flags();
  s.control = &words_.control(s.me);
  s.controls = reinterpret_cast<std::byte*>(&words_.control(0));
  s.shown_integers = words_.shown_integers();
  s.integer_stride = words_.integer_stride;
  s.total_integers = words_.total_integers(s.me);
  s.mine = sum.bits ? 1 : join_.partials(s.me);
  s.first = sum.bits ? s.me : join_.first_partial(s.me);
  s.partials = sum.bits ? s.members : join_.partials();
  for (int k = 0; k < s.partials; ++k)
    s.merges[k] = static_cast<uint8_t>(sum.bits ? k > 0 : join_.merges()[static_cast<size_t>(k)]);
  s.pending = sum.bits ? 2 : tree_depth(join_.merges().data(), join_.partials());
  for (int m = 0; m < s.members; ++m) {
    const int first = sum.bits ? m : join_.first_partial(m), count = sum.bits ? 1 : join_.partials(m);
    const float* const area = m == s.me ? nullptr : peers_[static_cast<size_t>(m)].area->data();
    for (int k = 0; k < count && sum.floats > 0; ++k)
      s.partial[first + k] = m == s.me ? sum.mine[static_cast<size_t>(k)] : area + k * stride_;
    s.slice[m] = m == s.me ? nullptr : area + join_.partials(m) * stride_;
    if (m != s.me && !peers_[static_cast<size_t>(m)].host)
      s.near[m] = reinterpret_cast<const PeerFlag*>(area + flags_at(m));
  }
  s.slice_at = join_.partials(s.me) * stride_;
  if (on_gpu_) {
    s.shown[0] = on_gpu_->data();
    s.near[s.me] = s.near_mine = reinterpret_cast<PeerFlag*>(on_gpu_->data() + flags_at(s.me));
  }
  if (on_host_) s.shown[1] = on_host_->data();
  return s;
}

void PeerSumLink::sum(float* total, std::span<const float* const> mine, int64_t floats, int64_t sequence,
                      LinkIntegers integers) {
  const size_t counts = integers.counts.size(), maxima = integers.maxima.size();
  int64_t* const totals = words_.total_integers(members_.me);
  begin_queued(sequence, integers);
  do
    queue({.total = total,
           .mine = mine,
           .floats = floats,
           .integers = {.counts = static_cast<int>(counts),
                        .maxima = static_cast<int>(maxima),
                        .of_shards = {},
                        .total = totals}});
  while (end_queued(sequence, 1) == 0);
  std::copy_n(totals, counts, integers.counts.data());
  std::copy_n(totals + counts, maxima, integers.maxima.data());
}

void PeerSumLink::begin_queued(int64_t sequence, LinkIntegers ours) {
  ask(sequence);
  if (ours.counts.size() + ours.maxima.size() > static_cast<size_t>(words_.integer_stride))
    throw std::logic_error("a sum over peers of more integers than its job's");
  std::ranges::copy(ours.maxima, std::ranges::copy(ours.counts, words_.own_integers(members_.me)).out);
  control().sequence = static_cast<uint64_t>(sequence);
  control().abandon = 0;
  took_ = 0;
  expect_all_blocks();
}

void PeerSumLink::expect_all_blocks() const {
  std::memset(control().unfinished, 0, sizeof control().unfinished);
  std::ranges::fill(control().waited_ns, 0);
  std::ranges::fill(control().took_ns, 0);
}

void PeerSumLink::queue(const QueuedSum& sum) {
  const size_t partials = sum.floats == 0 ? 0 : sum.bits ? 1 : static_cast<size_t>(join_.partials(members_.me));
  if (sum.mine.size() != partials || sum.floats > most_floats_ || sum.ahead >= kMostPeerSums)
    throw std::logic_error("a sum over peers of another shape than its job's");
  if (sum.ahead > 0 && !sum.integers.bad) throw std::logic_error("a sum over peers that nothing can hold");
  for (const float* const partial : sum.mine)
    if (reinterpret_cast<uintptr_t>(partial) % 16 != 0 || reinterpret_cast<uintptr_t>(sum.total) % 16 != 0)
      throw std::logic_error("a sum over peers of vectors that do not begin at a multiple of 16 bytes");
  PeerSum s = arguments(sum);
  s.counts = sum.integers.counts;
  s.maxima = sum.integers.maxima;
  s.flag = sum.integers.flag;
  s.of_shards = sum.integers.of_shards;
  s.integers = sum.integers.from_host ? words_.own_integers(s.me) : nullptr;
  s.total_integers = sum.integers.total;
  s.bad = sum.integers.bad;
  if (s.counts + s.maxima > words_.integer_stride)
    throw std::logic_error("a sum over peers of more integers than its job's");
  gpu_.kernels->queue(s, gpu_.stream);
}

int PeerSumLink::end_queued(int64_t sequence, int sums) {
  const double begin = monotonic_seconds();
  const int64_t last = sequence + sums - 1;
  const auto gives_up = [&] { return watch_.abandoned(members_.generation, last); };
  bool abandoned = false;
  do {
    abandoned = abandoned || gives_up();
    if (abandoned) std::atomic_ref(control().abandon).store(1);
    if (gpu_.idle()) break;
    pause_for_link(begin, usual_seconds_);
  } while (true);
  gpu_.device.wait();  // throws if the GPU has failed
  for (int i = 0; i < sums; ++i) {
    late_ += static_cast<double>(control().waited_ns[i]) * 1e-9;
    took_ += static_cast<double>(control().took_ns[i]) * 1e-9;
  }
  const auto left = [&](int i) {
    return std::ranges::any_of(control().unfinished[i], [](uint32_t block) { return block != 0; });
  };
  int ended = 0;
  while (ended < sums && !left(ended)) ++ended;
  if (ended == sums) {
    usual_seconds_ = monotonic_seconds() - begin;
    check_ran(last);
    return ended;
  }
  while (words_.undecided() && !gives_up()) pause_for_link(begin);
  if (abandoned || gives_up()) throw MembersChanged();
  expect_all_blocks();
  return ended;
}

void PeerSumLink::check_ran(int64_t sequence) const {
  const std::optional<int64_t> mark = words_.mark(members_.me, members_.generation);
  if (mark != sequence) throw std::runtime_error("a sum over peers ended without its work: the GPU did not run it");
}

}  // namespace tandem
