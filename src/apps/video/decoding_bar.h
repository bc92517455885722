// apps/video/decoding_bar.h -- how far decoding is, on a line that is drawn anew.
#pragma once

#include <algorithm>

#include "base/clock.h"
#include "command/output.h"
#include "command/progress_on_stderr.h"
#include "telemetry/human.h"
#include "telemetry/progress.h"
#include "video/prepare.h"

namespace tandem {

class DecodingBar {
 public:
  explicit DecodingBar(const Output& output)
      : output_(output), began_(monotonic_seconds()), display_(progress_on_stderr(output), began_) {}
  ~DecodingBar() { display_.clear(); }

  void show(const PrepareProgress& progress) {
    const double now = monotonic_seconds();
    if (output_.quiet() || !display_.due(now) || progress.frames_done == 0) return;
    ProgressRow row{.title = "decoding", .step = progress.videos_done, .total = progress.videos};
    row.counted = "video";
    row.unit = "frames";
    row.units_per_second = static_cast<double>(progress.frames_done) / (now - began_);
    if (progress.frames > 0) {
      row.fraction = std::min(1.0, static_cast<double>(progress.frames_done) / static_cast<double>(progress.frames));
      row.eta_seconds = (now - began_) * (1 / row.fraction - 1);
    }
    display_.show({.rows = {row}, .unicode = locale_is_utf8()}, now);
  }

 private:
  const Output& output_;
  double began_;
  ProgressDisplay display_;
};

}  // namespace tandem
