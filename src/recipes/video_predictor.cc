#include "recipes/video_predictor.h"

#include <ATen/ATen.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/errors.h"
#include "base/plain_file.h"
#include "base/printable.h"
#include "engine/gpu_device.h"
#include "nn/clips.h"
#include "nn/here.h"
#include "recipes/video_net.h"

namespace tandem {
namespace {

constexpr int64_t kFramesAtOnce = 4096;  // that lie on the device
constexpr int64_t kRowsOnCpu = 8;        // clips; of 256 x 256, a tenth of a gigabyte each

at::Tensor read_poses(const std::string& file, const VideoData& data, int64_t frames) {
  if (file.empty())
    throw ConfigError("this run needs poses beside the frames", "it was trained with poses = true",
                      "name DeepLabCut's file of the video: --pose FILE");
  std::ifstream stream = read_plain_file(file);
  if (!stream) throw IoError(fmt::format("{} can't be read", file), ENOENT, "name another file");
  DataFindings findings;
  std::vector<float> poses = read_pose(std::string{std::istreambuf_iterator<char>(stream), {}}, file, findings);
  refuse_video_errors(findings, file);
  if (static_cast<int64_t>(poses.size()) != frames * kPoseFeatures)
    throw ConfigError(fmt::format("{} has {} frames, the video {}", file, poses.size() / kPoseFeatures, frames),
                      "each frame needs its pose", "name the file of this video");
  data.pose_scaler.apply(poses);
  return at::from_blob(poses.data(), {frames, kPoseFeatures}).clone();
}

}  // namespace

ClipAugment clip_augment(const VideoSettings& settings) {
  const ClipAugmentSettings& a = settings.augment;
  return {.frame_drop = static_cast<float>(a.frame_drop),
          .flip = static_cast<float>(a.flip),
          .shift = static_cast<int>(a.shift),
          .contrast = static_cast<float>(a.contrast),
          .brightness = static_cast<float>(a.brightness),
          .noise = static_cast<float>(a.noise)};
}

at::ScalarType clip_type(const VideoSettings& settings) {
  return settings.precision == "bf16" ? at::kBFloat16 : settings.precision == "fp16" ? at::kHalf : at::kFloat;
}

std::string answer_prediction(const std::string& question, VideoNet& net, const VideoData& data,
                              const VideoSettings& settings) {
  const nlohmann::json asked = nlohmann::json::parse(question, nullptr, false);
  if (!asked.is_object() || asked.value("ask", "") != "predict")
    throw ConfigError("this question is not known: " + printable(question), "video can predict",
                      "use a tandem and a tandem-worker of the same version");
  const FrameFile file = FrameFile::open(asked.at("frames").get<std::string>());
  const int64_t frames = file.frames(), length = settings.clip_frames, clips = frames - length + 1;
  if (clips < 1)
    throw ConfigError(fmt::format("{} has {} frames", printable(file.source().name), frames),
                      fmt::format("a clip has {}", length), "name a longer video");
  if (file.height() != settings.size || file.width() != settings.size)
    throw ConfigError(fmt::format("frames of {} x {} for a net of {} x {}", file.height(), file.width(), settings.size,
                                  settings.size),
                      "a net reads frames as it was trained on",
                      fmt::format("prepare the video with --size {}", settings.size));
  const at::Tensor poses = settings.poses ? read_poses(asked.value("poses", ""), data, frames) : at::Tensor();
  const int64_t rows = gpu() ? std::clamp<int64_t>(asked.value("rows", int64_t{64}), 1, kFramesAtOnce / 2) : kRowsOnCpu;
  const double begin = monotonic_seconds();
  double after_first = 0;  // the first batch loads kernels, and looks for the fastest
  at::NoGradGuard no_grad;
  std::vector<int64_t> predicted;
  std::vector<float> probability;
  const int64_t part = kFramesAtOnce - length + 1;  // clips of one upload
  for (int64_t first = 0; first < clips; first += part) {
    const int64_t here_clips = std::min(part, clips - first), count = here_clips + length - 1;
    const at::Tensor on_device =
        here(at::from_blob(const_cast<uint8_t*>(file.frame(first)), {count, file.height(), file.width()}, at::kByte));
    for (int64_t begin_row = 0; begin_row < here_clips; begin_row += rows) {
      const int64_t n = std::min(rows, here_clips - begin_row);
      // All batches have one shape: the last one repeats its last clip.
      const at::Tensor starts = at::arange(begin_row, begin_row + rows, at::kLong).clamp_max(here_clips - 1);
      const at::Tensor input =
          make_clips(on_device, here(starts), {.length = static_cast<int>(length)}, {}, {}, clip_type(settings));
      at::Tensor pose;
      if (poses.defined()) {
        const at::Tensor at = (starts + first).unsqueeze(1) + at::arange(length, at::kLong);
        pose = here(poses.index_select(0, at.flatten()).view({rows, length, kPoseFeatures}));
      }
      const auto [best, which] = at::softmax(net.forward(input, pose, nullptr).to(at::kFloat), 1).max(1);
      const at::Tensor p = best.to(at::kCPU).contiguous(), c = which.to(at::kCPU).contiguous();
      predicted.insert(predicted.end(), c.const_data_ptr<int64_t>(), c.const_data_ptr<int64_t>() + n);
      probability.insert(probability.end(), p.const_data_ptr<float>(), p.const_data_ptr<float>() + n);
      if (after_first == 0) after_first = monotonic_seconds();
    }
  }
  const auto of_frame = [&](const auto& of_clips) {
    nlohmann::json all = nlohmann::json::array();
    for (int64_t f = 0; f < frames; ++f)
      all.push_back(of_clips[static_cast<size_t>(std::clamp<int64_t>(f - length / 2, 0, clips - 1))]);
    return all;
  };
  const double end = monotonic_seconds();
  nlohmann::json answer{{"classes", data.class_names},
                        {"predicted", of_frame(predicted)},
                        {"probability", of_frame(probability)},
                        {"rows", rows},
                        {"seconds", end - begin}};
  answer["frames_per_second"] =
      clips > rows ? nlohmann::json(static_cast<double>(clips - rows) / (end - after_first)) : nlohmann::json();
  return answer.dump();
}

}  // namespace tandem
