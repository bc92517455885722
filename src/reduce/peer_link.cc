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

#include "base/clock.h"
#include "base/errors.h"
#include "kernels/tree_kernels.h"
#include "reduce/link_pause.h"

namespace tandem {
namespace {

constexpr int64_t kLine = 16;        // floats
constexpr int64_t kPattern = kLine;  // floats at both ends of an area

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
      began_(monotonic_seconds()),
      peers_(members_.ranges.size()) {
  const int depth = tree_depth(join_.merges().data(), join_.partials());
  if (this->members() > kMostPeers || join_.partials() > kMostPeerPartials || depth > kMostPeerPending)
    refused_ = fmt::format("a kernel sums up to {} members, {} partial sums, {} of them at once; here are {}, {}, {}",
                           kMostPeers, kMostPeerPartials, kMostPeerPending, this->members(), join_.partials(), depth);
  words_pinned_ = gpu_.device.pin(words_.memory.data(), words_.memory.size());
  if (!words_pinned_ && gpu_.device.is_cuda() && refused_.empty())
    refused_ = "the driver does not pin memory of the host (a limit on locked memory: ulimit -l)";
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

uint64_t PeerSumLink::area_bytes(int member) const {
  const int64_t slice = (most_floats_ / members() / kLine + 2) * kLine;
  return static_cast<uint64_t>(join_.partials(member) * stride_ + slice + kPattern) * sizeof(float);
}

std::unique_ptr<PeerArea> PeerSumLink::made(PeerMemory& memory) const {
  const uint64_t bytes = area_bytes(members_.me);
  std::unique_ptr<PeerArea> area = memory.make(bytes);
  const std::vector<float> pattern = pattern_of(members_.generation, members_.me);
  float* const last = area->data() + bytes / sizeof(float) - kPattern;
  for (float* const at : {area->data(), last}) gpu_.device.from_host(at, pattern.data(), kPattern * sizeof(float));
  gpu_.device.wait();
  return area;
}

std::unique_ptr<PeerArea> PeerSumLink::mapped(PeerMemory& memory, int member, PeerLetter letter) const {
  const uint64_t bytes = area_bytes(member);
  if (letter.bytes != bytes) {
    if (letter.fd >= 0) close(letter.fd);
    throw std::runtime_error("its area has another size than ours would have");
  }
  std::unique_ptr<PeerArea> area = memory.map(letter.fd, letter.handle, bytes);
  const std::vector<float> pattern = pattern_of(members_.generation, member);
  for (const float* const at : {area->data(), area->data() + bytes / sizeof(float) - kPattern}) {
    std::vector<float> found(kPattern);
    gpu_.device.to_host(found.data(), at, kPattern * sizeof(float));
    if (found != pattern) throw std::runtime_error("what is read there is not what its owner wrote");
  }
  return area;
}

void PeerSumLink::offer() {
  PeerLetter letter;
  letter.kind = PeerLetter::Kind::kOffer;
  letter.bytes = area_bytes(members_.me);
  letter.blocks = gpu_.blocks;
  if (gpu_.device_memory && refused_.empty()) {
    try {
      on_gpu_ = made(*gpu_.device_memory);
      letter.has_area = true;
      letter.fd = on_gpu_->fd();
      letter.handle = on_gpu_->handle();
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
  if (!ready_ && refused_.empty() && monotonic_seconds() - began_ > options_.form_seconds)
    refused_ = fmt::format("the workers had not mapped each other's memory after {:g} s", options_.form_seconds);
}

void PeerSumLink::hear(int member, PeerLetter letter) {
  Peer& peer = peers_[static_cast<size_t>(member)];
  const int rank = members_.ranks.at(static_cast<size_t>(member));
  try {
    switch (letter.kind) {
      case PeerLetter::Kind::kOffer: {
        peer.blocks = std::clamp(letter.blocks, 1, kMostPeerBlocks);
        peer.host = true;
        if (letter.has_area && gpu_.device_memory) {
          try {
            peer.area = mapped(*gpu_.device_memory, member, std::move(letter));
            peer.host = false;
          } catch (const std::exception& refusal) {
            options_.log(fmt::format("the memory of rank {}'s GPU is not reached from here: {}", rank, refusal.what()));
          }
        } else if (letter.fd >= 0) {
          close(letter.fd);
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
  mail_->send(member, {.kind = PeerLetter::Kind::kHostArea,
                       .bytes = area_bytes(members_.me),
                       .handle = on_host_->handle(),
                       .fd = on_host_->fd()});
}

void PeerSumLink::give(std::span<int64_t> words, int64_t sequence) {
  const double begin = monotonic_seconds(), end = begin + (options_.waits ? kLinkFormWaitSeconds : 0);
  look();
  while (!ready_ && refused_.empty() && monotonic_seconds() < end) {
    ask(sequence);
    pause_for_link(begin);
    look();
  }
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
  std::vector<int> direct, by_host;
  bool somebody_reaches_ours = false, somebody_does_not = false;
  for (int m = 0; m < members(); ++m) {
    if (m == members_.me) continue;
    const Peer& peer = peers_[static_cast<size_t>(m)];
    blocks_ = std::min(blocks_, peer.blocks);
    (peer.host ? by_host : direct).push_back(members_.ranks[static_cast<size_t>(m)]);
    (peer.reads_host ? somebody_does_not : somebody_reaches_ours) = true;
  }
  if (!somebody_reaches_ours) on_gpu_.reset();
  if (!somebody_does_not) on_host_.reset();
  options_.log(
      fmt::format("sums by kernels over {} members, {} blocks: reads {} on their GPUs, {} in pinned host memory{}",
                  members(), blocks_, direct, by_host, no_area_.empty() ? "" : "; ours: " + no_area_));
}

void PeerSumLink::use_host(int refuser) {
  stage_ = Stage::kHost;
  if (refuser != members_.me) {
    options_.log("the GPUs combine through host memory: another worker's GPU can't share memory");
    return;
  }
  if (options_.required)
    throw ConfigError("the workers' GPUs can't read each other's memory, and TANDEM_PLANE allows nothing else",
                      refused_, "leave TANDEM_PLANE out: other ways give the same bits, more slowly");
  options_.note(fmt::format("the GPUs combine through host memory: {}", refused_));
}

// ---- summing ----

void PeerSumLink::ask(int64_t sequence) const {
  if (watch_.abandoned(members_.generation, sequence)) throw MembersChanged();
}

PeerSum PeerSumLink::arguments(float* total, std::span<const float* const> mine, int64_t floats) const {
  PeerSum s;
  s.members = members();
  s.me = members_.me;
  s.partials = join_.partials();
  s.first = join_.first_partial(members_.me);
  s.mine = join_.partials(members_.me);
  s.pending = tree_depth(join_.merges().data(), join_.partials());
  s.blocks = peer_blocks(floats, s.members, blocks_);
  s.generation = members_.generation;
  s.floats = floats;
  s.stride = stride_;
  s.wait_ns = options_.wait_ns;
  s.total = total;
  s.flags = words_.flags();
  s.control = &words_.control(s.me);
  s.controls = reinterpret_cast<std::byte*>(&words_.control(0));
  s.shown_integers = words_.shown_integers();
  s.integer_stride = words_.integer_stride;
  s.total_integers = words_.total_integers(s.me);
  for (int k = 0; k < s.partials; ++k) s.merges[k] = static_cast<uint8_t>(join_.merges()[static_cast<size_t>(k)]);
  for (int m = 0; m < s.members; ++m) {
    const int first = join_.first_partial(m), count = join_.partials(m);
    const float* const area = m == s.me ? nullptr : peers_[static_cast<size_t>(m)].area->data();
    for (int k = 0; k < count && floats > 0; ++k)
      s.partial[first + k] = m == s.me ? mine[static_cast<size_t>(k)] : area + k * stride_;
    s.slice[m] = m == s.me ? nullptr : area + count * stride_;
  }
  if (on_gpu_) s.shown[0] = on_gpu_->data();
  if (on_host_) s.shown[1] = on_host_->data();
  return s;
}

void PeerSumLink::sum(float* total, std::span<const float* const> mine, int64_t floats, int64_t sequence,
                      LinkIntegers integers) {
  const size_t counts = integers.counts.size(), maxima = integers.maxima.size();
  int64_t* const totals = words_.total_integers(members_.me);
  begin_queued(sequence, integers);
  do
    queue(total, mine, floats,
          {.counts = static_cast<int>(counts), .maxima = static_cast<int>(maxima), .of_shards = {}, .total = totals});
  while (!end_queued(sequence));
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
  expect_all_blocks();
}

void PeerSumLink::expect_all_blocks() const {
  std::memset(control().unfinished, 0, sizeof control().unfinished);
  control().waited_ns = control().took_ns = 0;
}

void PeerSumLink::queue(float* total, std::span<const float* const> mine, int64_t floats,
                        const DeviceIntegers& integers) {
  const size_t partials = floats > 0 ? static_cast<size_t>(join_.partials(members_.me)) : 0;
  if (mine.size() != partials || floats > most_floats_)
    throw std::logic_error("a sum over peers of another shape than its job's");
  for (const float* const partial : mine)
    if (reinterpret_cast<uintptr_t>(partial) % 16 != 0 || reinterpret_cast<uintptr_t>(total) % 16 != 0)
      throw std::logic_error("a sum over peers of vectors that do not begin at a multiple of 16 bytes");
  PeerSum s = arguments(total, mine, floats);
  s.counts = integers.counts;
  s.maxima = integers.maxima;
  s.flag = integers.flag;
  s.of_shards = integers.of_shards;
  s.integers = words_.own_integers(s.me);
  s.total_integers = integers.total;
  s.bad = integers.bad;
  gpu_.kernels->queue(s, gpu_.stream);
}

bool PeerSumLink::end_queued(int64_t sequence) {
  const double begin = monotonic_seconds();
  bool abandoned = false;
  do {
    abandoned = abandoned || watch_.abandoned(members_.generation, sequence);
    if (abandoned) std::atomic_ref(control().abandon).store(1);
    if (gpu_.idle()) break;
    pause_for_link(begin);
  } while (true);
  gpu_.device.wait();  // throws if the GPU has failed
  late_ += static_cast<double>(control().waited_ns) * 1e-9;
  took_ = static_cast<double>(control().took_ns) * 1e-9;
  if (std::ranges::any_of(control().unfinished, [](uint32_t left) { return left != 0; })) {
    while (words_.undecided() && !watch_.abandoned(members_.generation, sequence)) pause_for_link(begin);
    if (abandoned || watch_.abandoned(members_.generation, sequence)) throw MembersChanged();
    expect_all_blocks();
    return false;
  }
  check_ran(sequence);
  return true;
}

void PeerSumLink::check_ran(int64_t sequence) const {
  const std::optional<int64_t> mark = words_.mark(members_.me, members_.generation);
  if (mark != sequence) throw std::runtime_error("a sum over peers ended without its work: the GPU did not run it");
}

}  // namespace tandem
