#include "rl/replay/experience.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>

#include "base/errors.h"
#include "base/sha256.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

HistoryRead read_and_sum(const fs::path& file, HistoryReader& reader, Sha256& sum) {
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

}  // namespace

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
                            double holdout, const std::string& digest) {
  Experience out;
  out.width_ = shape.states;
  out.holdout_ = holdout;
  Sha256 sum;
  for (const fs::path& file : files) {
    HistoryReader reader(shape, [&](const HistoryRow& row) {
      if (row.agent == agent) out.add(row);
    });
    out.reads_.push_back(read_and_sum(file, reader, sum));
    if (const HistoryRead& read = out.reads_.back(); read.rows == 0)
      throw ConfigError(file.string() + " holds no transition that can be used",
                        read.lines == 0 ? "it is empty" : read.complaint(),
                        "write it as docs/continuous-learning.md says");
  }
  if (!out.rows_.empty()) out.end_segment();
  out.digest_ = sum.hex();
  if (!digest.empty() && digest != out.digest_)
    throw ConfigError(fmt::format("the experience changed since the run began: {}", files.front().string()),
                      fmt::format("its SHA-256 was {}, now it is {}", digest.substr(0, 16), out.digest_.substr(0, 16)),
                      "bring back the file as it was, or begin a new run");
  if (out.rows_.empty()) {
    std::vector<std::string> others;
    for (size_t a = 0; a < shape.agents.size(); ++a) {
      int64_t rows = 0;
      for (const HistoryRead& read : out.reads_) rows += read.rows_of[a];
      if (rows > 0) others.push_back(fmt::format("{} of {}", rows, shape.agents[a]));
    }
    throw ConfigError(fmt::format("{} holds nothing of the agent {}", files.front().string(),
                                  shape.agents.at(static_cast<size_t>(agent))),
                      fmt::format("its transitions are {}", fmt::join(others, ", ")),
                      "train one of these agents, or name another file");
  }
  return out;
}

void Experience::add(const HistoryRow& row) {
  if (!rows_.empty()) {
    Row& before = rows_.back();
    const bool follows = before.end == End::kNone && length_ < kLongestSegment &&
                         std::memcmp(next_.data(), row.state.data(), next_.size() * sizeof(float)) == 0;
    if (!follows) end_segment();
  }
  rows_.push_back({segments_, -1, row.action, row.reward, row.done ? End::kOver : End::kNone});
  states_.insert(states_.end(), row.state.begin(), row.state.end());
  next_.assign(row.next_state.begin(), row.next_state.end());
  ++length_;
}

void Experience::end_segment() {
  Row& last = rows_.back();
  if (last.end == End::kNone) last.end = End::kCut;
  last.last = static_cast<int64_t>(lasts_.size()) / width_;
  lasts_.insert(lasts_.end(), next_.begin(), next_.end());
  ++segments_;
  length_ = 0;
}

bool Experience::held_out(int64_t segment) const {
  const double g = static_cast<double>(segment);
  return std::floor((g + 1) * holdout_) > std::floor(g * holdout_);
}

int64_t Experience::held_out_rows() const {
  return std::count_if(rows_.begin(), rows_.end(), [&](const Row& row) { return held_out(row.segment); });
}

void Experience::each(bool held, const std::function<void(const ExperienceRow&)>& taker) const {
  for (size_t i = 0; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    if (held_out(row.segment) != held) continue;
    taker({row.segment, row.action, row.reward, row.end, states_.data() + static_cast<int64_t>(i) * width_,
           row.last < 0 ? nullptr : lasts_.data() + row.last * width_});
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
