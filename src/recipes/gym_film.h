// recipes/gym_film.h -- episodes of a Gymnasium environment as a video: played again in a process of its own, from
// their seeds and actions, with render_mode="rgb_array", and encoded by ffmpeg (on the PATH, or PyPI's imageio-ffmpeg).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "rl/gym/gym_process.h"
#include "rl/play.h"

namespace tandem {

struct FilmedEpisode {
  int64_t seed = 0;
  std::vector<int32_t> actions;                // or
  std::vector<std::vector<float>> continuous;  // from -1 to 1, what lies beyond counts as the end

  size_t length() const { return actions.size() + continuous.size(); }
  void add(const TakenAction& action) {
    if (action.continuous.empty())
      actions.push_back(action.discrete);
    else
      continuous.emplace_back(action.continuous.begin(), action.continuous.end());
  }
};

struct Film {
  int64_t frames = 0, width = 0, height = 0;
  double fps = 0;
};

// Before minutes of playing: throws ConfigError if the name says no kind of video (.mp4, .mkv, .webm, .gif), or the
// file could not be made.
void check_film_file(const std::filesystem::path& file);

// Before minutes of playing too: makes the environment and one picture of it. Throws as film_episodes.
void check_film_ready(const GymOptions& options, const std::string& python);

// The file is whole or not there. Throws ConfigError: no ffmpeg, a package that drawing needs, an environment that
// draws nothing; each says what to install or do.
Film film_episodes(const GymOptions& options, const std::string& python, const std::vector<FilmedEpisode>& episodes,
                   const std::filesystem::path& file);

}  // namespace tandem
