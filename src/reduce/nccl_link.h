// reduce/nccl_link.h -- one generation of an NcclTransport: agrees on a communicator, then sums over it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "reduce/direct_gpu_link.h"
#include "reduce/join.h"
#include "reduce/nccl_transport.h"

namespace tandem {

class NcclLink : public DirectGpuLink {
 public:
  static constexpr uint64_t kTagMask = (uint64_t{1} << 40) - 1;

  NcclLink(NcclTransport& transport, const LinkMembers& members, const Watch& watch);
  ~NcclLink() override;
  bool carries() const override { return stage_ == Stage::kCarrying; }
  void sum(float* total, std::span<const float* const> mine, int64_t floats, int64_t sequence,
           LinkIntegers integers) override;
  int words() const override { return stage_ == Stage::kAsking || stage_ == Stage::kForming ? kWords : 0; }
  void give(std::span<int64_t> words, int64_t sequence) override;
  void take(std::span<const int64_t> largest) override;

 private:
  enum class Stage { kAsking, kForming, kCarrying, kHost };
  struct Areas;  // for vectors of one length

  Areas& areas_for(int64_t floats);
  void ask(int64_t sequence) const;  // throws MembersChanged if this combine will never be
  template <class Ready>
  void wait(int64_t sequence, const Ready& ready) const;
  [[noreturn]] void failed(int64_t sequence, int result);
  template <class Calls>
  void group(int64_t sequence, const Calls& calls);
  void add_up(float* out, Areas& areas, std::span<const float* const> mine, int64_t first, int64_t length);

  void begin_forming();
  void form(std::span<const int64_t> words);
  void look();  // at the communicator that forms: refused_ if it failed or takes too long
  void use_host(int refuser);

  NcclTransport& transport_;
  LinkMembers members_;
  const Watch& watch_;
  SumTree tree_;
  Join<float> join_;
  Stage stage_ = Stage::kAsking;
  bool ready_ = false;
  std::string refused_;
  double began_ = 0;  // to form
  std::vector<std::unique_ptr<Areas>> areas_;
};

}  // namespace tandem
