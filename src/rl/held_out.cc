#include "rl/held_out.h"

#include <algorithm>
#include <bit>

#include "rl/replay/experience.h"

namespace tandem {
namespace {

constexpr uint64_t kFirst = 0x6A09E667F3BCC909u, kFactor = 0x9E3779B97F4A7C15u;

uint64_t mixed(uint64_t hash, uint32_t word) {
  hash = (hash ^ word) * kFactor;
  return hash ^ (hash >> 29);
}

// Of the rows so far and one more.
uint64_t with_row(uint64_t hash, const float* state, int64_t width, int32_t action, float reward) {
  for (int64_t i = 0; i < width; ++i) hash = mixed(hash, std::bit_cast<uint32_t>(state[i]));
  return mixed(mixed(hash, static_cast<uint32_t>(action)), std::bit_cast<uint32_t>(reward));
}

bool among(const std::vector<uint64_t>& sorted, uint64_t value) {
  return std::binary_search(sorted.begin(), sorted.end(), value);
}

LoggedEpisodes of_shape(int64_t state_size, int64_t action_count) {
  LoggedEpisodes log;
  log.state_size = state_size;
  log.action_count = action_count;
  return log;
}

}  // namespace

LoggedEpisodes held_out_episodes(const Experience& experience) {
  const HistoryShape& shape = experience.shape();
  LoggedEpisodes all = of_shape(shape.states, shape.actions), of_file = all;
  std::vector<ExperienceRow> rows;
  experience.each(true, [&](const ExperienceRow& row) { rows.push_back(row); });
  const size_t width = static_cast<size_t>(shape.states);
  for (size_t i = 0; i < rows.size(); ++i) {
    const bool begins = i == 0 || rows[i].episode != rows[i - 1].episode;
    if (begins && i > 0 && experience.file_of(rows[i].episode) != experience.file_of(rows[i - 1].episode)) {
      all.append(of_file);
      of_file = of_shape(shape.states, shape.actions);
    }
    if (begins) of_file.begin_episode(experience.episode_id(rows[i].episode));
    const float* const next = rows[i].next ? rows[i].next : rows[i + 1].state;
    of_file.add({rows[i].state, width}, rows[i].action, rows[i].reward, {next, width}, rows[i].end == End::kTerminated);
  }
  all.append(of_file);
  return all;
}

void LearnedEpisodes::add(const Experience& experience) {
  int64_t episode = -1;
  uint64_t hash = kFirst;
  bool open = false;
  const auto close = [&] {
    if (episode >= 0 && open) open_.push_back(hash);
  };
  experience.each(false, [&](const ExperienceRow& row) {
    if (row.episode != episode) {
      close();
      episode = row.episode;
      hash = kFirst;
      ids_.insert(experience.episode_id(episode));
    }
    hash = with_row(hash, row.state, experience.shape().states, row.action, row.reward);
    beginnings_.push_back(hash);
    open = row.end != End::kTerminated;
  });
  close();
  std::ranges::sort(open_);
  std::ranges::sort(beginnings_);
}

bool LearnedEpisodes::holds_part_of(const LoggedEpisodes& log, int64_t episode) const {
  if (ids_.contains(log.ids[static_cast<size_t>(episode)])) return true;
  const int64_t first = log.starts[static_cast<size_t>(episode)], end = log.end(episode);
  uint64_t hash = kFirst;
  for (int64_t row = first; row < end; ++row) {
    const size_t at = static_cast<size_t>(row);
    hash = with_row(hash, log.states.data() + row * log.state_size, log.state_size, log.actions[at], log.rewards[at]);
    if (among(open_, hash)) return true;
  }
  return !log.terminal[static_cast<size_t>(end - 1)] && among(beginnings_, hash);
}

int64_t LearnedEpisodes::leave_out_of(LoggedEpisodes& log) const {
  LoggedEpisodes kept = of_shape(log.state_size, log.action_count);
  for (int64_t e = 0; e < log.episodes(); ++e)
    if (!holds_part_of(log, e)) kept.add_episode(log, e);
  const int64_t before = log.different();
  log = std::move(kept);
  return before - log.different();
}

}  // namespace tandem
