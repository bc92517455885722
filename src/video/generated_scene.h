// video/generated_scene.h -- what a generated video shows: a shape on a ground, and what it does frame by frame.
//
// Which action is when: actions come in shuffled rounds of all of them, two to a trial, each for about half of it; with
// a rare share, the last action is left out of the rounds and comes as events of kRareFrames frames, spread evenly over
// the videos.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/philox.h"
#include "video/generated_videos.h"

namespace tandem {

inline constexpr int32_t kActions = 7;
inline constexpr int32_t kRareFrames = 12;  // of one event of the rare action
inline constexpr std::array<const char*, 6> kScenePartNames = {"mouth",     "L_frontpaw", "R_frontpaw",
                                                               "L_hindpaw", "R_hindpaw",  "tail_base"};

struct ScenePoint {
  double x = 0, y = 0;
};

struct SceneFrame {
  int16_t of_class = 0;
  ScenePoint centre;
  double radius = 0;
  std::array<ScenePoint, 6> parts() const;  // of an animal of that place and size
};

class GeneratedScene {
 public:
  GeneratedScene(const GeneratedVideoOptions& options, int32_t video);
  // Frame `frame` of the video; frames are drawn in their order. `pixels`: size x size.
  SceneFrame draw(int64_t frame, std::span<uint8_t> pixels);

 private:
  struct Look {  // of one trial
    double radius = 0, brightness = 0, ground = 0, slope_x = 0, slope_y = 0;
    int shape = 0;
  };
  void plan_actions();
  void begin_trial();
  void begin_action(int16_t action, int64_t frame);
  SceneFrame move(int64_t frame);
  void paint(const SceneFrame& scene, int64_t frame, std::span<uint8_t> pixels) const;
  double uniform(uint64_t index, double from, double to) const;

  const GeneratedVideoOptions options_;
  const int32_t video_;
  std::vector<int16_t> actions_;  // of each frame
  Look look_;
  int64_t draws_ = 0;         // of this video's stream of random numbers
  int64_t action_start_ = 0;  // frame
  int16_t action_ = -1;
  ScenePoint place_;  // where the shape is when it does nothing
  ScenePoint step_;   // of walking
  double speed_ = 1;  // this action's, of the usual
  int phase_ = 0;
};

}  // namespace tandem
