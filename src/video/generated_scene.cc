#include "video/generated_scene.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tandem {
namespace {

enum Action : int16_t { kRest, kWalk, kShake, kLick, kFlinch, kTurn, kActive };

// Streams of random numbers: what is where, the noise of each frame, which action is when.
constexpr uint32_t kLookSite = 0x5651, kNoiseSite = 0x5652, kPlanSite = 0x5653;
constexpr double kNoise = 8;  // of a pixel, either way

// 256 sin(2 pi k / 24), so that no libm has a say.
constexpr std::array<int, 24> kSines = {0, 66,  128,  181,  222,  247,  256,  247,  222,  181,  128,  66,
                                        0, -66, -128, -181, -222, -247, -256, -247, -222, -181, -128, -66};
double sine(int step) { return kSines[static_cast<size_t>(((step % 24) + 24) % 24)] / 256.0; }
double cosine(int step) { return sine(step + 6); }

// A turning place between two walls: as light between mirrors.
void keep_inside(double& at, double& step, double from, double to) {
  if (at < from) at = 2 * from - at, step = std::abs(step);
  if (at > to) at = 2 * to - at, step = -std::abs(step);
}

// Outside it is above 0; distance to the edge in pixels, about.
double beyond_edge(int shape, double dx, double dy, double radius) {
  if (shape == 0) return std::sqrt(dx * dx + dy * dy) - radius;
  if (shape == 1) return std::max(std::abs(dx), std::abs(dy)) - 0.9 * radius;
  return (std::abs(dx) + std::abs(dy) - 1.25 * radius) * 0.75;
}

}  // namespace

std::array<ScenePoint, 6> SceneFrame::parts() const {
  constexpr std::array<std::array<double, 2>, 6> kAround = {
      {{0, -1}, {-0.6, -0.5}, {0.6, -0.5}, {-0.7, 0.5}, {0.7, 0.5}, {0, 1}}};
  std::array<ScenePoint, 6> points;
  for (size_t i = 0; i < points.size(); ++i)
    points[i] = {centre.x + kAround[i][0] * radius, centre.y + kAround[i][1] * radius};
  return points;
}

GeneratedScene::GeneratedScene(const GeneratedVideoOptions& options, int32_t video) : options_(options), video_(video) {
  plan_actions();
}

void GeneratedScene::plan_actions() {
  const bool has_rare = options_.rare_share > 0;
  const uint32_t kinds = static_cast<uint32_t>(has_rare ? kActions - 1 : kActions);
  const RandomKey key{.seed = options_.seed, .step = static_cast<uint64_t>(video_), .site = kPlanSite};
  uint64_t draw = 0;
  std::vector<int16_t> round;
  const auto next_action = [&] {
    if (round.empty()) {
      for (uint32_t i = 0; i < kinds; ++i) round.push_back(static_cast<int16_t>(i));
      for (uint32_t i = kinds - 1; i > 0; --i) std::swap(round[i], round[random_below(key, draw++, i + 1)]);
    }
    const int16_t action = round.back();
    round.pop_back();
    return action;
  };
  for (int32_t trial = 0; trial < options_.trials; ++trial) {
    const auto half = static_cast<int32_t>(options_.frames * (0.4 + 0.2 * random_uniform(key, draw++)));
    const int16_t first = next_action(), second = next_action();
    for (int32_t i = 0; i < options_.frames; ++i) actions_.push_back(i < half ? first : second);
  }
  if (!has_rare) return;
  // Event e of the whole set is in the place e / events of all frames, so that each part of it has its share.
  const double all = static_cast<double>(actions_.size()) * options_.videos;
  const auto events = std::max<int64_t>(2, std::llround(all * options_.rare_share / kRareFrames));
  for (int64_t event = 0; event < events; ++event) {
    const auto at = static_cast<int64_t>((static_cast<double>(event) + 0.5) / static_cast<double>(events) * all);
    if (at / static_cast<int64_t>(actions_.size()) != video_) continue;
    const int64_t in_video = at % static_cast<int64_t>(actions_.size()), trial = in_video / options_.frames;
    const auto room = static_cast<uint32_t>(options_.frames - kRareFrames - 16);
    const int64_t start = trial * options_.frames + 8 + random_below(key, draw++, std::max(1U, room));
    for (int64_t i = start; i < std::min(start + kRareFrames, (trial + 1) * options_.frames); ++i)
      actions_[static_cast<size_t>(i)] = kActive;
  }
}

double GeneratedScene::uniform(uint64_t index, double from, double to) const {
  const RandomKey key{.seed = options_.seed, .step = static_cast<uint64_t>(video_), .site = kLookSite};
  return from + (to - from) * random_uniform(key, index);
}

void GeneratedScene::begin_trial() {
  const double size = options_.size;
  uint64_t draw = static_cast<uint64_t>(draws_);
  look_.radius = size * uniform(draw++, 0.09, 0.15);
  look_.shape = static_cast<int>(uniform(draw++, 0, 3));
  look_.ground = uniform(draw++, 30, 90);
  look_.brightness = look_.ground + uniform(draw++, 80, 140);
  look_.slope_x = uniform(draw++, -25, 25) / size;
  look_.slope_y = uniform(draw++, -25, 25) / size;
  place_ = {size * uniform(draw, 0.35, 0.65), size * uniform(draw + 1, 0.35, 0.65)};
  draws_ += 8;
  action_ = -1;
}

void GeneratedScene::begin_action(int16_t action, int64_t frame) {
  const auto draw = static_cast<uint64_t>(draws_);
  draws_ += 4;
  action_ = action;
  action_start_ = frame;
  phase_ = static_cast<int>(uniform(draw, 0, 24));
  if (action == kTurn || action == kFlinch) {  // else they would leave the frame
    place_.x = std::clamp(place_.x, 0.32 * options_.size, 0.68 * options_.size);
    place_.y = std::clamp(place_.y, 0.32 * options_.size, 0.68 * options_.size);
  }
  speed_ = uniform(draw + 1, 0.85, 1.15);
  step_ = {cosine(phase_) * speed_ * options_.size / 45.0, sine(phase_) * speed_ * options_.size / 45.0};
}

SceneFrame GeneratedScene::move(int64_t frame) {
  const double size = options_.size;
  const int t = static_cast<int>(frame - action_start_);
  SceneFrame now{.of_class = action_, .centre = place_, .radius = look_.radius};
  switch (action_) {
    case kWalk:
      place_.x += step_.x, place_.y += step_.y;
      keep_inside(place_.x, step_.x, 0.15 * size, 0.85 * size);
      keep_inside(place_.y, step_.y, 0.15 * size, 0.85 * size);
      now.centre = place_;
      break;
    case kShake:  // to and fro in four frames
      now.centre.x += cosine(phase_) * size * 0.055 * speed_ * sine(6 * t + 3);
      now.centre.y += sine(phase_) * size * 0.055 * speed_ * sine(6 * t + 3);
      break;
    case kLick:  // larger and smaller in eight
      now.radius *= 1 + 0.4 * sine(3 * t + phase_);
      break;
    case kFlinch:  // away for two of nine frames
      if (t % 9 < 2) {
        now.centre.x += cosine(phase_) * size * 0.2 * speed_;
        now.centre.y += sine(phase_) * size * 0.2 * speed_;
      }
      break;
    case kTurn:  // once round in 24
      now.centre.x += size * 0.17 * speed_ * cosine(t + phase_);
      now.centre.y += size * 0.17 * speed_ * sine(t + phase_);
      break;
    case kActive:  // somewhere else every second frame
      if (t % 2 == 0) {
        place_ = {size * uniform(static_cast<uint64_t>(draws_), 0.2, 0.8),
                  size * uniform(static_cast<uint64_t>(draws_) + 1, 0.2, 0.8)};
        draws_ += 2;
      }
      now.centre = place_;
      break;
    default:
      break;
  }
  return now;
}

void GeneratedScene::paint(const SceneFrame& scene, int64_t frame, std::span<uint8_t> pixels) const {
  const RandomKey key{.seed = options_.seed,
                      .step = static_cast<uint64_t>(video_) << 24 | static_cast<uint64_t>(frame),
                      .site = kNoiseSite};
  const int32_t size = options_.size;
  PhiloxBlock noise{};
  for (int32_t y = 0; y < size; ++y)
    for (int32_t x = 0; x < size; ++x) {
      const auto index = static_cast<size_t>(y) * static_cast<size_t>(size) + static_cast<size_t>(x);
      // A byte of noise for each pixel, 16 to a block.
      if (index % 16 == 0) noise = random_block(key, index / 16);
      const double chance = (noise.word[index % 16 / 4] >> (index % 4 * 8) & 255U) / 255.0;
      const double outside = beyond_edge(look_.shape, x - scene.centre.x, y - scene.centre.y, scene.radius);
      const double cover = std::clamp(0.5 - outside, 0.0, 1.0);
      const double ground = look_.ground + look_.slope_x * (x - size / 2) + look_.slope_y * (y - size / 2);
      const double value = ground + cover * (look_.brightness - ground) + kNoise * (2 * chance - 1);
      pixels[index] = static_cast<uint8_t>(std::clamp(value, 0.0, 255.0));
    }
}

SceneFrame GeneratedScene::draw(int64_t frame, std::span<uint8_t> pixels) {
  if (frame % options_.frames == 0) begin_trial();
  const int16_t action = actions_[static_cast<size_t>(frame)];
  if (action != action_) begin_action(action, frame);
  const SceneFrame scene = move(frame);
  paint(scene, frame, pixels);
  return scene;
}

}  // namespace tandem
