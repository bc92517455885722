#include "recipes/video_clips.h"

#include <ATen/ATen.h>

#include <cstring>

#include "engine/gpu_device.h"
#include "engine/resident_data.h"
#include "nn/here.h"
#include "telemetry/human.h"

namespace tandem {
namespace {

class ClipData : public Dataset {
 public:
  ClipData(const VideoData& data, std::span<const Clip> clips, const VideoSettings& settings, bool resident)
      : data_(data), clips_(clips), frames_(settings.clip_frames), resident_(resident) {}

  int64_t size() const override { return static_cast<int64_t>(clips_.size()); }
  std::string name() const override { return "clips"; }

  std::vector<DataField> fields() const override {
    std::vector<DataField> fields(3);
    fields[kClipFrames] = resident_ ? DataField{.name = "first_frame", .dtype = at::kLong}
                                    : DataField{.name = "frames",
                                                .dtype = at::kByte,
                                                .shape = {frames_, data_.set.height(), data_.set.width()}};
    fields[kClipLabel] = {.name = "label", .dtype = at::kLong};
    fields[kClipKey] = {.name = "key", .dtype = at::kLong, .shape = {3}};
    if (!data_.poses.empty()) fields.push_back({.name = "pose", .shape = {frames_, kPoseFeatures}});
    return fields;
  }

  void load_into(SampleWriter& out, const RandomKey& random) const override {
    const Clip& clip = clips_[static_cast<size_t>(out.sample())];
    if (resident_) {
      out.put(kClipFrames, clip.first_frame);
    } else {
      const std::span<uint8_t> to = out.write<uint8_t>(kClipFrames);
      std::memcpy(to.data(), data_.set.frame(clip.first_frame), to.size());
    }
    out.put(kClipLabel, static_cast<int64_t>(clip.label));
    std::ranges::copy(random_key_words(random), out.write<int64_t>(kClipKey).begin());
    if (!data_.poses.empty()) {
      const std::span<float> to = out.write<float>(kClipPose);
      std::copy_n(data_.poses.begin() + clip.first_frame * kPoseFeatures, to.size(), to.begin());
    }
  }

 private:
  const VideoData& data_;
  std::span<const Clip> clips_;
  int64_t frames_;
  bool resident_;
};

}  // namespace

at::Tensor frames_on_device(const VideoData& data, const VideoSettings& settings) {
  if (settings.frames_on_device == "off") return {};
  const auto bytes = static_cast<size_t>(data.set.frames() * data.set.frame_bytes());
  const size_t room = room_for_resident(gpu());
  if (bytes > room) {
    if (settings.frames_on_device == "auto") return {};
    throw ConfigError(fmt::format("the frames take {}, and {} are free for them", bytes_text(bytes), bytes_text(room)),
                      "frames_on_device is on", "set it to auto: clips then come from the mapped cache");
  }
  const at::Tensor frames = at::empty({data.set.frames(), data.set.height(), data.set.width()}, here(at::kByte));
  for (const SetVideo& video : data.set.videos())
    frames.narrow(0, video.first_frame, video.frames.frames())
        .copy_(at::from_blob(const_cast<uint8_t*>(video.frames.frame(0)),
                             {video.frames.frames(), data.set.height(), data.set.width()}, at::kByte));
  return frames;
}

std::unique_ptr<Dataset> clip_data(const VideoData& data, std::span<const Clip> clips, const VideoSettings& settings,
                                   bool resident) {
  return std::make_unique<ClipData>(data, clips, settings, resident);
}

}  // namespace tandem
