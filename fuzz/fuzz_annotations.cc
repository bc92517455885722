// fuzz/fuzz_annotations.cc -- video/annotations.h, video/class_table.h and video/pose.h: any bytes are trials, tables,
// poses or findings; what is read is sound.
#include <cmath>
#include <cstdlib>

#include "video/annotations.h"
#include "video/pose.h"

namespace {

using namespace tandem;

void expect(bool holds) {
  if (!holds) std::abort();
}

void check_trial(std::string_view text, bool accept_gaps) {
  static const ClassTable table = ClassTable::mouse(true);
  DataFindings findings;
  const Annotation trial = read_annotation(text, "a.csv", table, accept_gaps, findings);
  expect(trial.classes.size() == trial.lines.size());
  expect(static_cast<int64_t>(trial.classes.size()) <= kMostTrialFrames);
  for (const int16_t one : trial.classes)
    expect((one >= 0 && one < table.size()) || (one == kNoLabel && (accept_gaps || findings.errors() > 0)));
  for (size_t i = 1; i < trial.lines.size(); ++i) expect(trial.lines[i - 1] <= trial.lines[i]);
  expect(findings.errors() > 0 || !trial.classes.empty());
  expect(findings.render().size() < 10'000'000);
}

void check_table(std::string_view text) {
  DataFindings findings;
  const ClassTable table = ClassTable::read(text, "classes.csv", findings);
  if (findings.errors() > 0) return;
  expect(table.size() >= 2 && table.size() <= ClassTable::kMost);
  DataFindings again;
  const ClassTable same = ClassTable::read(table.csv(), "classes.csv", again);
  expect(again.errors() == 0 && same.names() == table.names());
  for (const std::string& label : table.labels()) {
    expect(table.class_of(label).has_value() && *table.class_of(label) < table.size());
    expect(same.class_of(label) == table.class_of(label));
  }
}

void check_pose(std::string_view text) {
  DataFindings findings;
  const std::vector<float> pose = read_pose(text, "p.csv", findings);
  expect(pose.size() % kPoseFeatures == 0);
  for (const float value : pose) expect(std::isfinite(value) && value >= 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_trial(text, false);
  check_trial(text, true);
  check_table(text);
  check_pose(text);
  if (const auto name = read_annotation_name(text))
    expect(!name->video.empty() && name->trial >= 0 && name->video.size() < size);
  return 0;
}
