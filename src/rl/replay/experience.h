// rl/replay/experience.h -- transitions of a real system (world/product_history.h) as a learner's replay holds them. No
// libtorch.
//
// The rows of one agent are cut into segments: a row follows another where its state is the other's next_state, number
// for number, so that n-step returns run over real successions; a segment ends with its episode, where nothing follows,
// or after kLongestSegment rows. Where it does not end with the episode, its last next_state stands for what came
// after. Segments are dealt out to shards and rings by their number in the file.
//
// An episode is a whole succession; one that goes on for kLongestEpisode rows without an end is cut there. Whole
// episodes are held out to judge by, chosen by the SHA-256 of what they hold: an episode is on the same side in every
// file and in every later run, and a smaller share holds out some of those that a larger one does. All of it is a
// function of the rows alone. That SHA-256 is the episode's id: equal ids, equal numbers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "rl/replay/replay.h"
#include "world/product_history.h"

namespace tandem {

// kSegments: every tenth segment or so by its number, as runs did that began before episodes were kept whole.
enum class Split { kSegments, kEpisodes };

struct Holdout {
  double share = 0;
  Split split = Split::kEpisodes;
};
Split split_named(const std::string& word);  // "segments" or "episodes", as the settings have it

struct ExperienceRow {
  int64_t segment = 0, episode = 0;  // from 0, held out or not
  int32_t action = 0;
  float reward = 0;
  End end = End::kNone;
  const float* state = nullptr;
  const float* next = nullptr;  // null where the row that follows has it as its state
};

class Experience {
 public:
  static constexpr int64_t kLongestSegment = 32, kLongestEpisode = 1024;

  // Rows of agent `agent` (an index into shape.agents) of the files, one after the other. `digest`: what their bytes
  // must be, empty for any. Sizes that the shape leaves open (0) are those of the files. Throws IoError, or ConfigError
  // where there is no file, one is no regular file, changed, holds nothing, or nothing of this agent.
  static Experience read(const std::vector<std::filesystem::path>& files, const HistoryShape& shape, int32_t agent,
                         const Holdout& holdout, const std::string& digest);

  int64_t rows() const { return static_cast<int64_t>(rows_.size()); }
  int64_t segments() const { return static_cast<int64_t>(segments_.size()); }
  int64_t episodes() const { return episodes_; }
  int64_t held_out_rows() const;
  int64_t held_out_episodes() const { return held_out_episodes_; }
  bool held_out(int64_t segment) const { return segments_[static_cast<size_t>(segment)].held_out; }
  const std::string& episode_id(int64_t episode) const { return ids_[static_cast<size_t>(episode)].id; }
  size_t file_of(int64_t episode) const { return ids_[static_cast<size_t>(episode)].file; }  // where it begins
  const HistoryShape& shape() const { return shape_; }  // with the sizes that were found
  const std::string& digest() const { return digest_; }
  const std::vector<HistoryRead>& read_of() const { return reads_; }  // what each file held, bad lines included

  void each(bool held_out, const std::function<void(const ExperienceRow&)>& taker) const;
  // A shard's part of what is learned from, into rings [first_ring, first_ring + rings) of its replay.
  void fill(Replay& replay, int shard, int64_t shards, int64_t first_ring, int64_t rings, int64_t priority) const;

 private:
  struct Row {
    int64_t segment;
    int64_t last;  // place of its next_state in lasts_, or -1
    int32_t action;
    float reward;
    End end;
  };
  struct Segment {
    int64_t episode;
    bool held_out;
  };
  struct EpisodeId {
    std::string id;
    size_t file;
  };
  void read_files(const std::vector<std::filesystem::path>& files, int32_t agent);
  void add(const HistoryRow& row);
  void end_segment();
  void end_episode();

  HistoryShape shape_;
  Holdout holdout_;
  int64_t segment_rows_ = 0, episode_rows_ = 0;  // of those that are being read
  int64_t episodes_ = 0, held_out_episodes_ = 0;
  size_t episode_file_ = 0;  // of the one that is being read
  std::vector<EpisodeId> ids_;
  Sha256 sum_, episode_sum_;
  std::string digest_;
  std::vector<Segment> segments_;
  std::vector<HistoryRead> reads_;
  std::vector<float> states_, lasts_, next_;  // next_: of the row added last
  std::vector<Row> rows_;
};

// "a.jsonl,b.jsonl" as a setting holds them.
std::vector<std::filesystem::path> experience_files(const std::string& list);

}  // namespace tandem
