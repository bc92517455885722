// monitor/sample_feed.h -- samples taken in a thread of their own, so that a driver which takes its time (a GPU that
// is falling off the bus can hold a call for seconds) never holds a view.
#pragma once

#include <memory>
#include <optional>

#include "monitor/machine_sampler.h"

namespace tandem {

class SampleFeed {
 public:
  SampleFeed(MonitorSamplerOptions options, double interval_seconds);
  ~SampleFeed();  // waits for a look that is under way, but not for ever
  SampleFeed(const SampleFeed&) = delete;
  SampleFeed& operator=(const SampleFeed&) = delete;

  int fd() const;                       // readable when there is a new one
  std::optional<MonitorSample> take();  // the newest that nobody took yet; throws what ended the looks
  double waited() const;                // seconds since the last one came

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace tandem
