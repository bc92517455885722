// video/ffmpeg/lost_frames.h -- which frames a decoder should have given and did not, so that those behind them keep
// their numbers: annotations count frames.
//
// Packets have times, and frames come in the order of theirs: a packet whose time is passed has lost its frame. That
// counts from the first damage on. Before it, a packet without a frame of its own is usual in some streams (fields,
// frames that are never shown), and FFmpeg passes it over; in such a stream nobody knows what damage has lost.
#pragma once

#include <cstdint>
#include <set>

namespace tandem {

class LostFrames {
 public:
  static constexpr int64_t kNoTime = INT64_MIN;  // AV_NOPTS_VALUE

  void sent(int64_t time);  // a packet
  void damage() { damaged_ = true; }
  int64_t before(int64_t time);  // a frame came: how many are lost between it and the one before
  int64_t at_end() const;        // no more will come
  // Something is lost, and where is not known.
  bool unknown() const { return damaged_ && (without_times_ || without_frames_); }

 private:
  std::multiset<int64_t> waiting_;  // times of packets whose frames have not come
  bool damaged_ = false, without_times_ = false, without_frames_ = false;
};

}  // namespace tandem
