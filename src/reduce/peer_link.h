// reduce/peer_link.h -- one generation of the sum between GPUs of one machine by kernels of ours (kernels/peer_sum.h).
//
// Each member has an area for its partial sums, its slice of the total and its flags, and maps those of the others: on
// the GPU where this one reaches it, else in pinned host memory. Each pair of GPUs is judged by trying: the memory must
// map, and what is read there must be what its owner wrote. The members tell each other by letters (PeerMail); host
// memory serves until all are ready, which they agree on by the words of a DirectGpuLink. Areas, flags and letters are
// those of one generation, so nothing that an older one still writes is read here.
//
// A member's death: its areas stay mapped here, so what it had shown stays readable. The others leave the kernel, since
// the Watch says so or since a wait is bounded, and throw MembersChanged before anything of this generation is
// unmapped. Whether a sum was completed is told by the flags of the dead one (PeerWords::mark).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "kernels/device.h"
#include "kernels/peer_sum.h"
#include "reduce/direct_gpu_link.h"
#include "reduce/join.h"
#include "reduce/peer_mail.h"
#include "reduce/peer_memory.h"
#include "reduce/peer_words.h"
#include "reduce/watch.h"

namespace tandem {

class PeerSumLink : public DirectGpuLink {
 public:
  struct Gpu {
    Device& device;
    const PeerKernels* kernels = nullptr;
    void* stream = nullptr;
    std::function<bool()> idle;
    int blocks = kMostPeerBlocks;         // that it runs at once
    bool steps = false;                   // several sums can be queued at once, with other work between them
    uint64_t takes_turns = 0;             // which GPU it is, where processes can't use it at once; else 0
    PeerMemory* device_memory = nullptr;  // null: every area lies in host memory
    PeerMemory* host_memory = nullptr;
  };
  // How this member reads another's sums.
  struct Way {
    int rank = 0;     // whose
    bool gpu = true;  // in its GPU's memory; else in pinned host memory
    std::string why;  // not in its GPU's
  };
  struct Options {
    std::string asked_for;     // by the user, as "TANDEM_PLANE=peer": a refusal ends the run; empty: host memory serves
    bool waits = false;        // a phase waits for a link that gets ready
    double form_seconds = 30;  // of waiting; then it is given up
    double (*now)() = monotonic_seconds;
    int64_t wait_ns = 200'000'000;                 // a kernel's longest wait; GPUs with a display allow a second or two
    std::function<void(const std::string&)> note;  // for the user: that kernels can't sum, and why
    std::function<void(const std::string&)> log;
    std::function<void(const std::vector<Way>&)> tell;  // once it carries
  };

  // `words`: the same memory for all members. `most_floats`: of a vector.
  PeerSumLink(LinkMembers members, PeerWords words, std::unique_ptr<PeerMail> mail, Gpu gpu, Options options,
              int64_t most_floats, const Watch& watch);
  ~PeerSumLink() override;
  // Gives back what is mapped and pinned: the members change, and nothing is under way. It carries nothing any more.
  void retire();

  bool carries() const override { return stage_ == Stage::kCarrying; }
  bool completes() const override { return true; }
  bool gave_up() const { return stage_ == Stage::kHost; }
  bool queues_steps() const override { return carries() && all_queue_steps_; }
  void sum(float* total, std::span<const float* const> mine, int64_t floats, int64_t sequence,
           LinkIntegers integers) override;
  void begin_queued(int64_t sequence, LinkIntegers ours) override;
  void queue(const QueuedSum& sum) override;
  int end_queued(int64_t sequence, int sums) override;
  double last_seconds() const override { return took_; }
  int words() const override { return stage_ == Stage::kForming ? 2 : 0; }
  void give(std::span<int64_t> words, int64_t sequence) override;
  void take(std::span<const int64_t> largest) override;
  double late_seconds() const override { return late_; }

 private:
  enum class Stage { kForming, kCarrying, kHost };
  struct Peer {
    std::unique_ptr<PeerArea> area;
    int blocks = 0;
    bool steps = false;
    bool host = false;  // we read its area in host memory
    std::string why_host;
    bool answered = false;  // it has told where it reads ours, and has what it needs for that
    bool reads_host = false;
  };

  int members() const { return static_cast<int>(members_.ranges.size()); }
  int64_t flags_at(int member) const;  // floats before them in its area
  uint64_t area_bytes(int member) const;
  void offer();
  void look();  // at the letters that have come
  bool forms() const { return !ready_ && refused_.empty(); }
  void hear(int member, PeerLetter letter);
  void write(PeerArea& area, size_t at, std::span<const float> values) const;
  std::vector<float> read(const PeerArea& area, size_t at) const;
  std::unique_ptr<PeerArea> made(PeerMemory& memory) const;
  std::unique_ptr<PeerArea> mapped(PeerMemory& memory, int member,
                                   PeerLetter letter) const;  // throws unless it reads right
  void send_host_area(int member);
  void begin_carrying();
  void use_host(int refuser);
  void ask(int64_t sequence) const;
  PeerSum arguments(const QueuedSum& sum) const;
  PeerControl& control() const { return words_.control(members_.me); }
  void expect_all_blocks() const;
  void check_ran(int64_t sequence) const;

  LinkMembers members_;
  PeerWords words_;
  std::unique_ptr<PeerMail> mail_;
  Gpu gpu_;
  Options options_;
  const Watch& watch_;
  SumTree tree_;
  Join<float> join_;
  int64_t most_floats_, stride_;
  Stage stage_ = Stage::kForming;
  double waited_ = 0;  // to form
  bool ready_ = false, words_pinned_ = false, all_queue_steps_ = false;
  std::string refused_, no_area_;
  double late_ = 0, took_ = 0, usual_seconds_ = 0;
  int blocks_ = 0;
  std::unique_ptr<PeerArea> on_gpu_, on_host_;
  std::vector<Peer> peers_;  // by member; our own is unused
};

}  // namespace tandem
