#include "reduce/nccl_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "base/errors.h"
#include "reduce/link_pause.h"

namespace tandem {
namespace {

constexpr int kIdBytes = 6;  // of a word: none is below 0

// The words of one member; of all members the largest is taken.
enum Word { kRefuser, kUnready, kTag, kTagTurned, kId };
constexpr int kIdWords = (sizeof(NcclId) + kIdBytes - 1) / kIdBytes;
static_assert(kId + kIdWords == DirectGpuLink::kWords);

constexpr int64_t kLargestTag = static_cast<int64_t>(NcclLink::kTagMask);

void put_id(std::span<int64_t> words, const NcclId& id) {
  for (size_t i = 0; i < sizeof id; ++i)
    words[kId + i / kIdBytes] |= static_cast<int64_t>(static_cast<unsigned char>(id.bytes[i])) << 8 * (i % kIdBytes);
}

NcclId id_in(std::span<const int64_t> words) {
  NcclId id{};
  for (size_t i = 0; i < sizeof id; ++i)
    id.bytes[i] = static_cast<char>(words[kId + i / kIdBytes] >> 8 * (i % kIdBytes));
  return id;
}

bool has_id(std::span<const int64_t> words) {
  return std::any_of(words.begin() + kId, words.end(), [](int64_t word) { return word != 0; });
}

}  // namespace

struct NcclLink::Areas {
  Areas(Device& d, int64_t n, int64_t slice, int slots) : device(d), floats(n), stride((slice + 15) / 16 * 16) {
    memory = static_cast<float*>(d.allocate(static_cast<size_t>(stride) * slots * sizeof(float)));
  }
  ~Areas() { device.release(memory); }
  Areas(const Areas&) = delete;
  Areas& operator=(const Areas&) = delete;
  float* slot(int k) const { return memory + stride * k; }

  Device& device;
  int64_t floats, stride;
  float* memory;  // the others' partials of our slice, then the sums between
};

NcclLink::NcclLink(NcclTransport& transport, const LinkMembers& members, const Watch& watch)
    : transport_(transport),
      members_(members),
      watch_(watch),
      tree_(members.shards),
      join_(tree_, members_.ranges),
      refused_(transport.refused_) {}

NcclLink::~NcclLink() {
  if (transport_.under_way_) transport_.drop();  // it reads and writes our memory
}

// ---- agreeing ----

void NcclLink::begin_forming() {
  stage_ = Stage::kForming;
  began_ = monotonic_seconds();
}

void NcclLink::give(std::span<int64_t> words, int64_t sequence) {
  if (stage_ == Stage::kAsking && transport_.comm_) {  // to go on with; it has formed already, or it shrinks
    const int result = transport_.comm_->result();
    ready_ = result == kNcclSuccess;
    if (!ready_ && result != kNcclInProgress) transport_.drop();
  }
  if (stage_ == Stage::kAsking && members_.me == 0 && transport_.tag_ == 0 && refused_.empty()) {
    NcclId id;
    if (const int said = transport_.library_->get_unique_id(&id); said == kNcclSuccess)
      put_id(words, id);
    else
      refused_ = transport_.library_->words_for(said);
  }
  if (stage_ == Stage::kForming) {
    const double end = monotonic_seconds() + (transport_.options_.waits ? kLinkFormWaitSeconds : 0);
    wait(sequence, [&] {
      look();
      return ready_ || !refused_.empty() || monotonic_seconds() >= end;
    });
  }
  if (!refused_.empty()) words[kRefuser] = static_cast<int64_t>(members_.ranges.size()) - members_.me;
  words[kUnready] = ready_ ? 0 : 1;
  words[kTag] = static_cast<int64_t>(transport_.tag_);
  words[kTagTurned] = kLargestTag - words[kTag];
}

void NcclLink::take(std::span<const int64_t> largest) {
  if (largest[kRefuser] != 0)
    return use_host(static_cast<int>(static_cast<int64_t>(members_.ranges.size()) - largest[kRefuser]));
  if (stage_ == Stage::kAsking) {
    const bool all_hold_the_same = largest[kTag] != 0 && largest[kTag] == kLargestTag - largest[kTagTurned];
    if (!all_hold_the_same) {
      ready_ = false;
      transport_.drop();
      if (has_id(largest)) form(largest);  // else the first member had hoped to go on: its id comes with the next phase
      return;
    }
    begin_forming();
  }
  if (largest[kUnready] != 0) return;
  stage_ = Stage::kCarrying;
  transport_.agreed_ = true;
  transport_.sums_ = 0;
  transport_.options_.log(fmt::format("NCCL {}: {} members, agreed after {:.2f} s", transport_.library_->version(),
                                      members_.ranges.size(), monotonic_seconds() - began_));
}

void NcclLink::form(std::span<const int64_t> words) {
  begin_forming();
  transport_.comm_ = std::make_unique<NcclComm>(transport_.library_, transport_.gpu_, transport_.options_.times,
                                                transport_.options_.stuck);
  transport_.ranks_ = members_.ranks;
  transport_.agreed_ = false;
  transport_.comm_->form(id_in(words), static_cast<int>(members_.ranges.size()), members_.me);
  uint64_t tag = 0;
  for (const int64_t word : words.subspan(kId)) tag = (tag ^ static_cast<uint64_t>(word)) * 0x9e3779b97f4a7c15;
  transport_.tag_ = (tag >> 20 & kTagMask) | 1;
}

void NcclLink::look() {
  if (ready_ || !refused_.empty()) return;
  const int result = transport_.comm_->result();
  ready_ = result == kNcclSuccess;
  if (result != kNcclSuccess && result != kNcclInProgress)
    refused_ = transport_.library_->words_for(result);
  else if (!ready_ && monotonic_seconds() - began_ > transport_.options_.times.form_seconds)
    refused_ = fmt::format("the communicator had not formed after {:g} s", transport_.options_.times.form_seconds);
}

void NcclLink::use_host(int refuser) {
  stage_ = Stage::kHost;
  transport_.drop();
  if (refuser != members_.me) {
    transport_.options_.log("the GPUs combine through host memory: another worker can't use NCCL, or its NCCL refused");
    return;
  }
  if (transport_.options_.required)
    throw ConfigError(
        "the workers can't combine over NCCL, and TANDEM_PLANE=nccl allows nothing else", refused_,
        "leave TANDEM_PLANE out: host memory gives the same bits, more slowly; NCCL_DEBUG=WARN tells more");
  const std::string note = fmt::format("the GPUs combine through host memory: NCCL refused ({})", refused_);
  if (std::exchange(transport_.last_note_, note) != note) transport_.options_.note(note);
}

// ---- summing ----

void NcclLink::ask(int64_t sequence) const {
  if (watch_.abandoned(members_.generation, sequence)) throw MembersChanged();
}

template <class Ready>
void NcclLink::wait(int64_t sequence, const Ready& ready) const {
  const double begin = monotonic_seconds();
  while (!ready()) {
    ask(sequence);
    pause_for_link(begin);
  }
}

// A peer's death breaks NCCL before the launcher has told of it. Where NCCL failed on all, the first member ends before
// the others, whose error its death then explains.
void NcclLink::failed(int64_t sequence, int result) {
  const std::string words = transport_.library_->words_for(result);
  const double end = monotonic_seconds() + transport_.options_.times.blame_seconds * (1 + 0.2 * members_.me);
  wait(sequence, [&] { return monotonic_seconds() > end; });
  throw std::runtime_error(fmt::format("NCCL failed, and no worker had died: {}", words));
}

template <class Calls>
void NcclLink::group(int64_t sequence, const Calls& calls) {
  NcclComm& comm = *transport_.comm_;
  const NcclLibrary& nccl = *transport_.library_;
  int bad = nccl.group_start();
  const auto note = [&](int said) {
    if (bad == kNcclSuccess && said != kNcclSuccess && said != kNcclInProgress) bad = said;
  };
  const auto send = [&](const float* from, int64_t n, int peer) {
    if (n > 0 && bad == kNcclSuccess)
      note(nccl.send(from, static_cast<size_t>(n), NcclLibrary::kFloat32, peer, comm.handle(), transport_.gpu_.stream));
  };
  const auto receive = [&](float* to, int64_t n, int peer) {
    if (n > 0 && bad == kNcclSuccess)
      note(nccl.recv(to, static_cast<size_t>(n), NcclLibrary::kFloat32, peer, comm.handle(), transport_.gpu_.stream));
  };
  calls(send, receive);
  note(nccl.group_end());
  int now = bad;
  if (now == kNcclSuccess)  // the group is on the stream once NCCL says so: what we queue next comes after it
    wait(sequence, [&] { return (now = comm.result()) != kNcclInProgress; });
  if (now != kNcclSuccess) failed(sequence, now);
}

NcclLink::Areas& NcclLink::areas_for(int64_t floats) {
  for (auto& areas : areas_)
    if (areas->floats == floats) return *areas;
  const int members = static_cast<int>(members_.ranges.size());
  const auto [first, last] = slice_of(floats, members, members_.me);
  areas_.push_back(
      std::make_unique<Areas>(transport_.device_, floats, last - first, join_.partials() + join_.buffers()));
  return *areas_.back();
}

void NcclLink::add_up(float* out, Areas& areas, std::span<const float* const> mine, int64_t first, int64_t length) {
  const int own = join_.first_partial(members_.me);
  const auto buffer = [&](int k) { return areas.slot(join_.partials() + k); };
  std::vector<const float*> inputs;
  for (const auto& sum : join_.sums()) {
    inputs.clear();
    for (const int operand : sum.operands) {
      const bool ours = operand >= own && operand < own + static_cast<int>(mine.size());
      inputs.push_back(operand < 0 ? buffer(-1 - operand) : ours ? mine[operand - own] + first : areas.slot(operand));
    }
    float* const to = &sum == &join_.sums().back() ? out : buffer(sum.buffer);
    transport_.device_.add_in_order(to, inputs.data(), static_cast<int>(inputs.size()), length);
  }
}

void NcclLink::sum(float* total, std::span<const float* const> mine, int64_t floats, int64_t sequence, LinkIntegers) {
  ask(sequence);
  const int members = static_cast<int>(members_.ranges.size()), me = members_.me;
  const auto [first, last] = slice_of(floats, members, me);
  Areas& areas = areas_for(floats);
  transport_.under_way_ = true;
  group(sequence, [&](const auto& send, const auto& receive) {
    for (int step = 1; step < members; ++step) {  // each begins with another peer
      const int to = (me + step) % members, from = (me + members - step) % members;
      const auto [begin, end] = slice_of(floats, members, to);
      for (const float* partial : mine) send(partial + begin, end - begin, to);
      for (int k = join_.first_partial(from); k < join_.first_partial(from) + join_.partials(from); ++k)
        receive(areas.slot(k), last - first, from);
    }
  });
  if (first < last) add_up(total + first, areas, mine, first, last - first);
  group(sequence, [&](const auto& send, const auto& receive) {
    for (int step = 1; step < members; ++step) {
      const int to = (me + step) % members, from = (me + members - step) % members;
      const auto [begin, end] = slice_of(floats, members, from);
      send(total + first, last - first, to);
      receive(total + begin, end - begin, from);
    }
  });
  int now = kNcclSuccess;
  wait(sequence, [&] {
    now = transport_.comm_->result();
    return now != kNcclInProgress && (now != kNcclSuccess || transport_.gpu_.idle());
  });
  if (now != kNcclSuccess) failed(sequence, now);
  transport_.under_way_ = false;
  ++transport_.sums_;
}

}  // namespace tandem
