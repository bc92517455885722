#include "telemetry/tfevents.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/temp_dir.h"
#include "telemetry/atomic_file.h"
#include "telemetry/crc32c.h"
#include "telemetry/telemetry.h"

namespace tandem {
namespace {

std::vector<std::filesystem::path> event_files(const std::filesystem::path& dir) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(dir))
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

StepRecord event_record(int64_t step, double loss) {
  StepRecord r;
  r.step = step, r.loss = loss, r.learning_rate = 0.5, r.grad_norm = 2, r.seconds = 0.25, r.samples = 8;
  r.metrics = {{"accuracy", 0.125}};
  return r;
}

TelemetryOptions options_for(const TempDir& dir) {
  TelemetryOptions options;
  options.run_dir = dir.path();
  options.quiet = true;
  options.report = false;
  options.unix_seconds = [] { return 1794707226.0; };  // the same second for both starts, on purpose
  return options;
}

// A run of 20 steps, stopped; resumed after step 12 with another loss from there on, to step 30.
void write_resumed_run(const TempDir& dir) {
  {
    Telemetry first(options_for(dir));
    for (int64_t s = 1; s <= 20; ++s) first.record(event_record(s, 1.0));
  }
  auto options = options_for(dir);
  options.resume_step = 12;
  Telemetry second(options);
  for (int64_t s = 13; s <= 30; ++s) second.record(event_record(s, 3.0));
}

TEST(TfEvents, EachRecordIsFramedByLengthAndMaskedChecksums) {
  std::string out;
  const std::array<Scalar, 1> scalars = {{{"train/loss", 0.5f}}};
  append_tfevents_scalars(out, 1.5, 300, scalars);
  uint64_t length;
  uint32_t length_crc, data_crc;
  std::memcpy(&length, out.data(), 8);
  std::memcpy(&length_crc, out.data() + 8, 4);
  ASSERT_EQ(out.size(), 12 + length + 4);
  std::memcpy(&data_crc, out.data() + 12 + length, 4);
  EXPECT_EQ(length_crc, masked_crc32c({out.data(), 8}));
  EXPECT_EQ(data_crc, masked_crc32c({out.data() + 12, length}));
  // wall_time 1.5, step 300, summary{value{tag "train/loss" simple_value 0.5}}, as protoc writes it
  const std::string event("\x09\0\0\0\0\0\0\xF8\x3F\x10\xAC\x02\x2A\x13\x0A\x11\x0A\x0Atrain/loss\x15\0\0\0\x3F", 33);
  EXPECT_EQ(out.substr(12, length), event);
}

TEST(TfEvents, TheFileNamesItsVersionFirstAndASecondOneSortsAfter) {
  const TempDir dir;
  write_resumed_run(dir);
  const auto files = event_files(dir.path());
  ASSERT_EQ(files.size(), 2u);
  const std::string second = *read_small_file(files[1]);
  EXPECT_NE(second.substr(0, 60).find("brain.Event:2"), std::string::npos);
  const std::string start = tfevents_start_record(1794707226.0, 13);
  EXPECT_NE(second.find(start), std::string::npos) << "the second file begins with SessionLog START at step 13";
  EXPECT_EQ(read_small_file(files[0])->find(start), std::string::npos);
}

TEST(TfEvents, AFileOfTheSameSecondOrOfAClockSetBackSortsAfterThoseThere) {
  const TempDir dir;
  write_file_atomically(dir / "events.out.tfevents.1794707300.zzz.99999.7", "");
  const TfEventsWriter same(dir.path(), 1794707300.5, 0), earlier(dir.path(), 1794700000, 5);
  EXPECT_GT(same.path().filename().string(), "events.out.tfevents.1794707300.zzz.99999.7");
  EXPECT_GT(earlier.path().filename(), same.path().filename());
}

TEST(TfEvents, TensorBoardReadsBackARunAndItsResume) {
  const std::string python = TANDEM_PYTHON;
  if (python.empty())
    GTEST_SKIP() << "no python given: configure with -DTANDEM_PYTHON=<a python with the package tensorboard>";
  const TempDir dir;
  write_resumed_run(dir);
  std::string command = "'" + python + "' '" TANDEM_TEST_SCRIPTS "/check_tfevents.py' '" + dir.path().string() + "'";
  for (const auto& file : event_files(dir.path())) command += " '" + file.string() + "'";
  FILE* pipe = ::popen((command + " 2>/dev/null").c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string output;
  std::array<char, 4096> block;
  while (const size_t n = std::fread(block.data(), 1, block.size(), pipe)) output.append(block.data(), n);
  const int status = ::pclose(pipe);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << python << " has no package tensorboard";
  ASSERT_EQ(status, 0) << output;

  const auto seen = nlohmann::json::parse(output);
  EXPECT_EQ(seen["files"][0],
            (nlohmann::json{{"records", 21}, {"version", "brain.Event:2"}, {"starts", nlohmann::json::array()}}));
  EXPECT_EQ(seen["files"][1], (nlohmann::json{{"records", 20}, {"version", "brain.Event:2"}, {"starts", {13}}}));
  const auto& loss = seen["scalars"]["train/loss"];
  ASSERT_EQ(loss.size(), 30u) << "steps 13 to 20 of the first start are forgotten";
  for (int64_t s = 1; s <= 30; ++s) {
    EXPECT_EQ(loss[static_cast<size_t>(s - 1)][0], s);
    EXPECT_EQ(loss[static_cast<size_t>(s - 1)][1], s <= 12 ? 1.0 : 3.0) << s;
  }
  EXPECT_EQ(seen["scalars"]["train/lr"][0][1], 0.5);
  EXPECT_EQ(seen["scalars"]["train/grad_norm"][0][1], 2.0);
  EXPECT_EQ(seen["scalars"]["train/samples_per_s"][0][1], 32.0);
  EXPECT_EQ(seen["scalars"]["train/accuracy"][29][1], 0.125);
}

}  // namespace
}  // namespace tandem
