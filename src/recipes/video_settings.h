// recipes/video_settings.h -- settings of `video`: a 3D CNN that says what an animal does in each frame of a video.
//
// Defaults are those of the guide that it follows: 17 frames of 256 x 256, four blocks 32-64-128-256, Adam, cosine warm
// restarts, the best model by macro F1.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "config/run_settings.h"

namespace tandem {

// Moving shapes in place of videos (video/generated_videos.h).
struct GeneratedVideosSettings {
  int64_t videos = 12, trials = 4;
  int64_t frames = 120;
  int64_t seed = 1;
  double rare_share = 0;
};

struct VideoNetSettings {
  std::string kind = "full";  // light: three blocks of half the channels, a head of half the width
  int64_t width = 32;         // channels of the first block; each block has twice as many as the one before
  double dropout = 0.5;
};

struct ClipAugmentSettings {
  double brightness = 0.2, contrast = 0.2, noise = 0.02, frame_drop = 0.1, flip = 0;
  int64_t shift = 5;
};

struct VideoSettings : RecipeSettings {
  std::string data;         // folder of videos and annotations; empty: the generated set
  std::string cache;        // of frames; empty: beside the videos
  std::string data_digest;  // of what was read, set when the run begins; what follows too, for `tandem predict`
  std::string class_names;  // joined by commas
  std::string pose_scale;   // PoseScaler::text()
  int64_t size = 256;       // height and width of frames
  int64_t clip_frames = 17;
  int64_t clip_stride = 1;
  bool merge_withdraw = true;
  bool accept_gaps = false;
  bool poses = false;
  std::string animal_separator = "_";
  std::string split = "video";
  double validation_share = 0.2;
  int64_t split_seed = 42;
  GeneratedVideosSettings generated;

  VideoNetSettings net;
  std::string class_weights = "balanced";
  double label_smoothing = 0;
  ClipAugmentSettings augment;
  std::string frames_on_device = "auto";

  VideoSettings() {
    shards = 8;
    batch_size = 128;
    epochs = 100;
    clip_norm = 1;
    optimizer.learning_rate = 1e-3;
    optimizer.weight_decay = 1e-5;
    optimizer.decay_vectors = true;  // as torch.optim.Adam does
    schedule.kind = "cosine_restarts";
    schedule.restart_epochs = 10;
    schedule.restart_factor = 2;
    schedule.min_factor = 1e-3;  // 1e-6 of a rate of 1e-3
    schedule.base_batch = 128;
    validation.best = "macro_f1";
    validation.patience = 15;
  }

  std::vector<std::string> units() const override { return {"epochs"}; }

  void describe(Describer& d) override {
    RecipeSettings::describe(d);
    d.key("data", data, "folder of videos and annotations; empty: a generated set", Role::kRunning);
    d.key("cache", cache, "folder of decoded frames; empty: `frames` beside the videos", Role::kRunning);
    d.key("data_digest", data_digest, "SHA-256 of what was read there; set when the run begins");
    d.key("class_names", class_names, "names of the classes, in order; set when the run begins");
    d.key("pose_scale", pose_scale, "means and deviations of the poses in training; set when the run begins");
    d.key("size", size, Range::between(16, 1024), "height and width that frames are scaled to");
    d.key("clip.frames", clip_frames, Range::between(9, 255), "frames of a clip, odd; its label is the centre frame's");
    d.key("clip.stride", clip_stride, Range::between(1, 1000), "frames from the start of a clip to that of the next");
    d.key("merge_withdraw", merge_withdraw,
          "paw_guard and flinch count as paw_withdraw, where there is no classes.csv");
    d.key("accept_gaps", accept_gaps, "frames that annotations leave out are allowed, and the centre of no clip");
    d.key("poses", poses, "DeepLabCut's files are a second input: 18 numbers a frame");
    d.key("split.by", split, Choices{{"trial", "video", "animal"}}, "what goes to training or validation as a whole");
    d.key("split.validation_share", validation_share, Range{.min = 0, .max = 1, .above_min = true, .below_max = true},
          "share of the trials that validate");
    d.key("split.seed", split_seed, Range::at_least(0), "seed of the split");
    d.key("split.animal_separator", animal_separator,
          "an animal's name is that of its video up to here, where there is no animals.csv; empty: all of it");
    d.key("generated.videos", generated.videos, Range::between(2, 10'000), "generated set: videos");
    d.key("generated.trials", generated.trials, Range::between(1, 1000), "generated set: trials of each video");
    d.key("generated.frames", generated.frames, Range::between(40, 100'000), "generated set: frames of each trial");
    d.key("generated.seed", generated.seed, Range::at_least(0), "generated set: its seed");
    d.key("generated.rare_share", generated.rare_share, Range::from_up_to_below(0, 1),
          "generated set: share of the rarest class; 0: all occur equally often");
    describe_net(d);
  }

  void describe_net(Describer& d) {
    d.key("net.kind", net.kind, Choices{{"full", "light"}},
          "full: four blocks; light: three of half the channels, and a head of half the width");
    d.key("net.width", net.width, Range::between(2, 256), "channels of the first block, even");
    d.key("net.dropout", net.dropout, Range::from_up_to_below(0, 1), "dropout in the head");
    d.key("loss.class_weights", class_weights, Choices{{"balanced", "none"}},
          "balanced: a class weighs all / (classes * its clips), counted in training alone");
    d.key("loss.label_smoothing", label_smoothing, Range::from_up_to_below(0, 1),
          "share of each label that is spread over all classes");
    d.key("augment.brightness", augment.brightness, Range::from_up_to_below(0, 1), "brightness times 1 +- this");
    d.key("augment.contrast", augment.contrast, Range::from_up_to_below(0, 1), "contrast times 1 +- this");
    d.key("augment.noise", augment.noise, Range::between(0, 1), "standard deviation of the noise of each pixel");
    d.key("augment.frame_drop", augment.frame_drop, Range::from_up_to_below(0, 1),
          "share of frames that repeat the one before them");
    d.key("augment.shift", augment.shift, Range::between(0, 128), "most pixels that a clip is moved by, each way");
    d.key("augment.flip", augment.flip, Range::between(0, 1), "share of clips whose left and right are exchanged");
    d.key("frames_on_device", frames_on_device, Choices{{"auto", "on", "off"}},
          "all frames stay on the device, and clips are cut there; auto: where they fit", Role::kRunning);
  }

  void check() const override {
    RecipeSettings::check();
    check_sizes();
  }

  // What is known before any file is read.
  void check_sizes() const {
    if (clip_frames % 2 == 0)
      throw ConfigError(fmt::format("clip.frames is {}", clip_frames), "a clip has a centre frame, whose label it has",
                        fmt::format("set clip.frames to {} or {}", clip_frames - 1, clip_frames + 1));
    if (net.width % 2 != 0)
      throw ConfigError(fmt::format("net.width is {}", net.width), "the light net has half of it",
                        fmt::format("set net.width to {} or {}", net.width - 1, net.width + 1));
    const int64_t least = net.kind == "light" ? 8 : 16;  // what the pools leave one place of
    if (size < least)
      throw ConfigError(fmt::format("size is {}", size), "the net's pools halve it again and again",
                        fmt::format("set size to {} or more", least));
    if (2 * augment.shift >= size)
      throw ConfigError(fmt::format("augment.shift is {} for frames of {} x {}", augment.shift, size, size),
                        "a clip moved that far shows mostly its border", "make it smaller");
  }

  // What `--quick` sets: a generated set of small frames, two minutes on two cores. At so high a rate some seeds learn
  // slowly without an epoch of warm-up. One cycle of the cosine is the rest, so training ends at the lowest rate.
  static std::vector<std::pair<std::string, std::string>> quick() {
    return {{"size", "32"},         {"net.kind", "light"},
            {"net.dropout", "0.2"}, {"optimizer.learning_rate", "0.003"},
            {"epochs", "9"},        {"schedule.warmup_epochs", "1"},
            {"batch_size", "64"},   {"schedule.restart_epochs", "8"},
            {"clip.stride", "2"},   {"generated.videos", "10"},
            {"augment.shift", "2"}};
  }
};

}  // namespace tandem
