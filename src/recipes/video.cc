// recipes/video.cc -- `video`: what an animal does in each frame, by a 3D CNN on the clip around it.
//
// Training draws clips in a new order in each epoch, augmented by a stream of (seed, epoch, clip). Validation counts a
// confusion matrix and gathers the prediction of every clip, in whole numbers, so all its metrics are the same for any
// number of workers. Asked by `tandem predict`, it labels every frame of a decoded video.
#include <ATen/ATen.h>

#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "base/printable.h"
#include "engine/evaluate.h"
#include "engine/supervised.h"
#include "nn/here.h"
#include "recipes/makers.h"
#include "recipes/video_clips.h"
#include "recipes/video_loss.h"
#include "recipes/video_net.h"
#include "recipes/video_predictor.h"
#include "telemetry/confusion_table.h"
#include "video/metrics/confusion.h"
#include "video/metrics/segments.h"

namespace tandem {
namespace {

class Video : public SupervisedRecipe {
 public:
  explicit Video(const VideoSettings& s) : SupervisedRecipe(s), s_(s), data_(data_of(s)) {}

  std::shared_ptr<torch::nn::Module> make_model() override {
    if (!only_answers()) frames_ = frames_on_device(data_, s_);
    at::Tensor weights = at::empty({classes()});
    for (int64_t c = 0; c < classes(); ++c)
      weights.data_ptr<float>()[c] = static_cast<float>(data_.class_weights[static_cast<size_t>(c)]);
    class_weights_ = here(weights);
    return net_ = std::make_shared<VideoNet>(s_, classes());
  }
  std::unique_ptr<Dataset> make_data() override { return clip_data(data_, data_.training, s_, numbered()); }
  std::unique_ptr<Dataset> make_validation_data() override {
    return clip_data(data_, data_.validation, s_, numbered());
  }

  at::Tensor forward(const Batch& batch, ShardContext& context) override {
    at::Tensor clips;
    {
      at::NoGradGuard no_grad;
      const at::Tensor& input = batch.tensors.at(kClipFrames);
      clips = make_clips(frames_.defined() ? frames_ : input, frames_.defined() ? input : at::Tensor(),
                         {.length = static_cast<int>(s_.clip_frames)}, clip_augment(s_),
                         context.training() ? batch.tensors.at(kClipKey) : at::Tensor(), clip_type(s_));
    }
    return net_->forward(clips, s_.poses ? batch.tensors.at(kClipPose) : at::Tensor(), &context);
  }

  // The mean weight of a clip is the divisor: fixed, so that shards add up, where torch divides by those of the batch.
  at::Tensor row_losses(const at::Tensor& output, const Batch& batch) override {
    return smoothed_cross_entropy(output, batch.tensors.at(kClipLabel), class_weights_, s_.label_smoothing) /
           data_.mean_weight();
  }

  // ---- metrics ----

  MoreMetrics more_metrics() const override {
    MoreMetrics more{.metrics = {{"macro_f1", true},
                                 {"weighted_f1", true},
                                 {"segment_f1", true},
                                 {"macro_precision", true},
                                 {"macro_recall", true}},
                     .counts = static_cast<int>(classes() * classes()),
                     .gathered = 1};
    const std::vector<std::string>& names = data_.class_names;
    for (const std::string& name : names) more.metrics.push_back({"f1[" + name + "]", true});
    if (names.size() > kMostTableClasses) return more;
    for (const std::string& truth : names)
      for (const std::string& predicted : names)
        more.metrics.push_back({.name = confusion_cell(truth, predicted), .decides = false});
    return more;
  }

  void count_more(const at::Tensor& output, const Batch& batch, RowCounts& to) override {
    const at::Tensor predicted = output.argmax(1);
    const at::Tensor cell = (batch.tensors.at(kClipLabel) * classes() + predicted).narrow(0, 0, to.real());
    to.count(0, (cell.unsqueeze(1) == at::arange(classes() * classes(), cell.options()).unsqueeze(0)).sum(0));
    to.gather(0, predicted);
  }

  std::vector<double> more_values(const ValidationTotals& totals) const override {
    const ClassificationScores scores = ConfusionMatrix(classes(), totals.counts).scores();
    std::vector<double> values{scores.macro_f1, scores.weighted_f1, segments(totals.gathered).f1(),
                               scores.macro_precision, scores.macro_recall};
    for (const ClassScores& one : scores.classes) values.push_back(one.f1);
    if (static_cast<size_t>(classes()) <= kMostTableClasses)
      for (const int64_t cell : totals.counts) values.push_back(static_cast<double>(cell));
    return values;
  }

  // ---- what `tandem predict` asks (apps/video/video_predict.h) ----

  std::string answer(const std::string& question, JobState&) override {
    return answer_prediction(question, *net_, data_, s_);
  }

 private:
  static VideoData data_of(const VideoSettings& settings) {
    if (only_answers())
      if (std::optional<VideoData> kept = video_data_kept(settings)) return std::move(*kept);
    make_ready(settings);
    return load_video_data(settings, /*verify=*/false);  // `train` and `resume` have verified them
  }
  int64_t classes() const { return static_cast<int64_t>(data_.class_names.size()); }
  // Samples are numbers of frames; to answer a question none is looked at.
  bool numbered() const { return frames_.defined() || only_answers(); }

  SegmentCounts segments(std::span<const int64_t> predicted) const {
    SegmentCounts all;
    for (const auto& [begin, end] : stretches_of(data_.validation, static_cast<int32_t>(s_.clip_stride))) {
      std::vector<int64_t> truth;
      for (size_t i = begin; i < end; ++i) truth.push_back(data_.validation[i].label);
      all.add(match_segments(truth, predicted.subspan(begin, end - begin)));
    }
    return all;
  }

  const VideoSettings& s_;
  const VideoData data_;
  at::Tensor frames_, class_weights_;
  std::shared_ptr<VideoNet> net_;
};

}  // namespace

std::unique_ptr<Recipe> make_video(const VideoSettings& settings) { return std::make_unique<Video>(settings); }

}  // namespace tandem
