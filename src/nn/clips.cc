#include "nn/clips.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>
#include <cstring>
#include <string>

#include "base/errors.h"
#include "kernels/clip_math.h"
#include "nn/kernel_choice.h"

namespace tandem {
namespace {

static_assert(sizeof(RandomKey) == 3 * sizeof(int64_t));

std::string tensor_text(const at::Tensor& t) {
  if (!t.defined()) return "none";
  return fmt::format("{} [{}] on {}", c10::toString(t.scalar_type()), fmt::join(t.sizes(), ", "), t.device().str());
}

void refuse_bad_clips(const at::Tensor& frames, const at::Tensor& first_frame, const ClipShape& shape,
                      const ClipAugment& a, const at::Tensor& keys) {
  const bool own = frames.dim() == 4;
  if (frames.scalar_type() != at::kByte || (frames.dim() != 3 && !own) || frames.numel() == 0)
    throw ConfigError("make_clips() was given frames " + tensor_text(frames),
                      "frames are uint8: [count, height, width], or [rows, count, height, width] of a batch",
                      "give it the frames as they lie in the frame cache");
  if (shape.length < 1 || shape.stride < 1)
    throw ConfigError(
        fmt::format("make_clips() was asked for clips of {} frames with stride {}", shape.length, shape.stride),
        "both are numbers from 1 up", "change them");
  if (own == first_frame.defined() || (!own && (first_frame.dim() != 1 || first_frame.scalar_type() != at::kLong ||
                                                first_frame.device() != frames.device())))
    throw ConfigError(
        fmt::format("make_clips() was given frames {} and first frames {}", tensor_text(frames),
                    tensor_text(first_frame)),
        "clips out of [count, height, width] begin at first_frame, int64 [rows]; those of [rows, count, height, "
        "width] at their own first frame",
        "give first_frame with a whole video's frames, on their device, and none with a batch's own");
  const int64_t rows = own ? frames.size(0) : first_frame.size(0);
  if (keys.defined() && (keys.dim() != 2 || keys.size(0) != rows || keys.size(1) != 3 ||
                         keys.scalar_type() != at::kLong || keys.device() != frames.device()))
    throw ConfigError(fmt::format("make_clips() was given keys {} for {} clips", tensor_text(keys), rows),
                      "each clip draws from its own stream: int64 [rows, 3] on the device of the frames",
                      "write random_key_words() of each sample's key");
  const bool shares = a.frame_drop >= 0 && a.frame_drop < 1 && a.flip >= 0 && a.flip <= 1 && a.contrast >= 0 &&
                      a.contrast <= 1 && a.brightness >= 0 && a.brightness <= 1 && a.noise >= 0;
  if (!shares || a.shift < 0 || a.shift > 4096)
    throw ConfigError(
        fmt::format("make_clips() was given frame_drop {}, flip {}, shift {}, contrast {}, brightness {}, noise {}",
                    a.frame_drop, a.flip, a.shift, a.contrast, a.brightness, a.noise),
        "shares lie in [0, 1] (frame_drop below 1), the noise from 0 up, the shift in 0 .. 4096", "change them");
  if (int64_t{shape.length} * frames.size(-1) * frames.size(-2) > INT32_MAX || shape.length > (1 << 16))
    throw ConfigError(fmt::format("make_clips() was asked for {} frames of {} x {} a clip", shape.length,
                                  frames.size(-2), frames.size(-1)),
                      "a clip has at most 2^31 pixels and 65,536 frames", "use shorter clips or smaller frames");
}

void refuse_clips_outside(const ClipCall& call) {
  for (int64_t row = 0; row < call.rows; ++row)
    if (clip_first_frame(call, row) < 0)
      throw ConfigError(
          fmt::format("clip {} of a batch begins at frame {} and has {} frames with stride {}, of {} in all", row,
                      call.first_frame ? call.first_frame[row] : 0, call.length, call.stride,
                      call.first_frame ? call.frame_count : call.frames_per_row),
          "it leaves the frames", "let clips begin at 0 or later, and end before the frames do");
}

}  // namespace

std::array<int64_t, 3> random_key_words(const RandomKey& key) { return std::bit_cast<std::array<int64_t, 3>>(key); }

at::Tensor make_clips(const at::Tensor& given_frames, const at::Tensor& given_first, const ClipShape& shape,
                      const ClipAugment& augment, const at::Tensor& given_keys, at::ScalarType type) {
  refuse_bad_clips(given_frames, given_first, shape, augment, given_keys);
  const at::Tensor frames = given_frames.contiguous();
  const at::Tensor first = given_first.defined() ? given_first.contiguous() : given_first;
  const at::Tensor keys = given_keys.defined() ? given_keys.contiguous() : given_keys;
  const bool own = frames.dim() == 4;
  ClipCall call{.frames = frames.const_data_ptr<uint8_t>(),
                .frame_count = own ? frames.size(0) * frames.size(1) : frames.size(0),
                .first_frame = own ? nullptr : first.const_data_ptr<int64_t>(),
                .frames_per_row = own ? frames.size(1) : 0,
                .rows = own ? frames.size(0) : first.size(0),
                .length = shape.length,
                .stride = shape.stride,
                .height = static_cast<int>(frames.size(-2)),
                .width = static_cast<int>(frames.size(-1)),
                .augment = augment,
                .keys = nullptr,
                .out = {}};
  if (keys.defined()) call.keys = reinterpret_cast<const RandomKey*>(keys.const_data_ptr<int64_t>());
  if (own && int64_t{shape.length - 1} * shape.stride >= frames.size(1))
    throw ConfigError(fmt::format("clips of {} frames with stride {} were asked of rows of {} frames", shape.length,
                                  shape.stride, frames.size(1)),
                      "a clip ends within its row", "use shorter clips, or rows of more frames");
  if (frames.is_cpu()) refuse_clips_outside(call);
  const at::Tensor clips =
      at::empty({call.rows, 1, call.length, call.height, call.width}, frames.options().dtype(type));
  if (clips.numel() == 0) return clips;
  call.out = {clips.data_ptr(), float_type(clips)};
  kernels_for<ClipKernels>(frames).make(call, stream_for(frames));
  return clips;
}

}  // namespace tandem
