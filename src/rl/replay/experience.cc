#include "rl/replay/experience.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>

#include "base/errors.h"
#include "base/printable.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

void check_regular(const fs::path& file) {
  std::error_code error;
  const fs::file_status status = fs::status(file, error);
  if (!fs::exists(status) || fs::is_regular_file(status) || fs::is_directory(status)) return;
  throw ConfigError(printable(file.string()) + " is no regular file",
                    "every worker reads it again and compares its bytes, which a pipe or a device does not allow",
                    "write the lines to a file and name that");
}

HistoryRead read_and_sum(const fs::path& file, HistoryReader& reader, Sha256& sum) {
  check_regular(file);
  std::ifstream in(file, std::ios::binary);
  if (!in || fs::is_directory(file))
    throw IoError("can't read " + file.string(), in ? EISDIR : errno, "name a file of JSON lines that exists");
  std::vector<char> buffer(size_t{1} << 16);
  while (in.read(buffer.data(), static_cast<std::streamsize>(buffer.size())) || in.gcount() > 0) {
    const std::string_view piece(buffer.data(), static_cast<size_t>(in.gcount()));
    sum.update(std::as_bytes(std::span(piece)));
    reader.feed(piece);
  }
  if (in.bad())
    throw IoError("can't read " + file.string() + " to its end", errno, "look after the disk, then try again");
  return reader.finish();
}

template <class T>
void add_bytes(Sha256& sum, std::span<const T> values) {
  sum.update(std::as_bytes(values));
}

[[noreturn]] void nothing_of_agent(const fs::path& file, const HistoryShape& shape, int32_t agent,
                                   const std::vector<HistoryRead>& reads) {
  std::vector<std::string> others;
  for (size_t a = 0; a < shape.agents.size(); ++a) {
    int64_t rows = 0;
    for (const HistoryRead& read : reads) rows += read.rows_of[a];
    if (rows > 0) others.push_back(fmt::format("{} of {}", rows, shape.agents[a]));
  }
  throw ConfigError(
      fmt::format("{} holds nothing of the agent {}", file.string(), shape.agents.at(static_cast<size_t>(agent))),
      fmt::format("its transitions are {}", fmt::join(others, ", ")),
      "train one of these agents, or name another file");
}

}  // namespace

Split split_named(const std::string& word) { return word == "episodes" ? Split::kEpisodes : Split::kSegments; }

std::vector<fs::path> experience_files(const std::string& list) {
  std::vector<fs::path> files;
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    if (end > at) files.emplace_back(list.substr(at, end - at));
    at = end + 1;
  }
  return files;
}

Experience Experience::read(const std::vector<fs::path>& files, const HistoryShape& shape, int32_t agent,
                            const Holdout& holdout, const std::string& digest) {
  if (files.empty())
    throw ConfigError("the list of experience names no file", "it has commas only",
                      "name files: --experience new.jsonl");
  Experience out;
  out.shape_ = shape;
  out.holdout_ = holdout;
  out.read_files(files, agent);
  out.digest_ = out.sum_.hex();
  if (!digest.empty() && digest != out.digest_)
    throw ConfigError(fmt::format("the experience changed since the run began: {}", files.front().string()),
                      fmt::format("its SHA-256 was {}, now it is {}", digest.substr(0, 16), out.digest_.substr(0, 16)),
                      "bring back the file as it was, or begin a new run");
  if (out.rows_.empty()) nothing_of_agent(files.front(), shape, agent, out.reads_);
  return out;
}

void Experience::read_files(const std::vector<fs::path>& files, int32_t agent) {
  int32_t largest = -1;
  for (const fs::path& file : files) {
    HistoryReader reader(shape_, [&](const HistoryRow& row) {
      if (shape_.states == 0) shape_.states = static_cast<int32_t>(row.state.size());
      if (row.agent == agent) add(row);
    });
    reads_.push_back(read_and_sum(file, reader, sum_));
    const HistoryRead& read = reads_.back();
    if (read.rows == 0)
      throw ConfigError(file.string() + " holds no transition that can be used",
                        read.lines == 0 ? "it is empty" : read.complaint(),
                        "write it as docs/continuous-learning.md says");
    largest = std::max(largest, read.largest_action);
  }
  if (shape_.actions == 0) shape_.actions = largest + 1;
  if (rows_.empty()) return;
  end_segment();
  end_episode();
}

void Experience::add(const HistoryRow& row) {
  if (!rows_.empty()) {
    const bool follows = rows_.back().end == End::kNone && episode_rows_ < kLongestEpisode &&
                         std::memcmp(next_.data(), row.state.data(), next_.size() * sizeof(float)) == 0;
    if (!follows || segment_rows_ == kLongestSegment) end_segment();
    if (!follows) end_episode();
  }
  if (episode_rows_ == 0) episode_file_ = reads_.size();
  rows_.push_back({segments(), -1, row.action, row.reward, row.done ? End::kTerminated : End::kNone});
  states_.insert(states_.end(), row.state.begin(), row.state.end());
  next_.assign(row.next_state.begin(), row.next_state.end());
  add_bytes(episode_sum_, row.state);
  add_bytes(episode_sum_, std::span(&row.action, 1));
  add_bytes(episode_sum_, std::span(&row.reward, 1));
  ++segment_rows_;
  ++episode_rows_;
}

void Experience::end_segment() {
  Row& last = rows_.back();
  if (last.end == End::kNone) last.end = End::kTruncated;
  last.last = static_cast<int64_t>(lasts_.size()) / shape_.states;
  lasts_.insert(lasts_.end(), next_.begin(), next_.end());
  const double g = static_cast<double>(segments());
  const bool held =
      holdout_.split == Split::kSegments && std::floor((g + 1) * holdout_.share) > std::floor(g * holdout_.share);
  segments_.push_back({episodes_, held});
  segment_rows_ = 0;
}

void Experience::end_episode() {
  const int32_t over = rows_.back().end == End::kTerminated ? 1 : 0;
  add_bytes(episode_sum_, std::span<const float>(next_));
  add_bytes(episode_sum_, std::span(&over, 1));
  ids_.push_back({episode_sum_.hex(), episode_file_});
  const uint64_t hash = std::stoull(ids_.back().id.substr(0, 16), nullptr, 16);
  episode_sum_ = Sha256();
  bool any = false;
  for (auto segment = segments_.rbegin(); segment != segments_.rend() && segment->episode == episodes_; ++segment) {
    if (holdout_.split == Split::kEpisodes)
      segment->held_out = static_cast<double>(hash >> 11) * 0x1p-53 < holdout_.share;
    any = any || segment->held_out;
  }
  held_out_episodes_ += any ? 1 : 0;
  ++episodes_;
  episode_rows_ = 0;
}

int64_t Experience::held_out_rows() const {
  return std::count_if(rows_.begin(), rows_.end(), [&](const Row& row) { return held_out(row.segment); });
}

void Experience::each(bool held, const std::function<void(const ExperienceRow&)>& taker) const {
  for (size_t i = 0; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    if (held_out(row.segment) != held) continue;
    taker({row.segment, segments_[static_cast<size_t>(row.segment)].episode, row.action, row.reward, row.end,
           states_.data() + static_cast<int64_t>(i) * shape_.states,
           row.last < 0 ? nullptr : lasts_.data() + row.last * shape_.states});
  }
}

void Experience::fill(Replay& replay, int shard, int64_t shards, int64_t first_ring, int64_t rings,
                      int64_t priority) const {
  int64_t before = -1, dealt = -1;  // segments that are learned from, counted
  each(false, [&](const ExperienceRow& row) {
    if (row.segment != before) ++dealt;
    before = row.segment;
    if (dealt % shards != shard) return;
    replay.add(first_ring + dealt / shards % rings, row.state, row.action, row.reward, row.end, row.next, priority);
  });
}

}  // namespace tandem
