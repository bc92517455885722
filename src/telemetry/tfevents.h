// telemetry/tfevents.h -- TensorBoard's event file, by a hand-written encoder.
//
// Six message types of protobuf are needed and no reader, so there is no protobuf here (libtorch carries another one).
// A record is: length, masked CRC-32C of the length, an Event, masked CRC-32C of it. The first event names the format;
// a resumed run opens a second file that begins with SessionLog START, upon which TensorBoard forgets the steps of the
// first file from there on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace tandem {

struct Scalar {
  std::string_view tag;
  float value;
};

// The bytes of single records, for tests and for the writer.
std::string tfevents_version_record(double unix_seconds);
std::string tfevents_start_record(double unix_seconds, int64_t step);
// A PNG of that width and height.
void append_tfevents_image(std::string& out, double unix_seconds, int64_t step, std::string_view tag, int width,
                           int height, std::string_view png);
void append_tfevents_scalars(std::string& out, double unix_seconds, int64_t step, std::span<const Scalar> scalars);

class TfEventsWriter {
 public:
  // Opens events.out.tfevents.<sec>.<host>.<pid>.<n> in `dir`, named so that it sorts after those already there, since
  // that is the order in which TensorBoard reads them. first_step > 0: the run goes on at that step. Throws IoError.
  TfEventsWriter(const std::filesystem::path& dir, double unix_seconds, int64_t first_step);
  ~TfEventsWriter();
  TfEventsWriter(const TfEventsWriter&) = delete;
  TfEventsWriter& operator=(const TfEventsWriter&) = delete;

  void add(double unix_seconds, int64_t step, std::span<const Scalar> scalars);
  void add_image(double unix_seconds, int64_t step, std::string_view tag, int width, int height, std::string_view png);
  void flush();  // throws IoError; the unwritten rest stays buffered, at most 4 MB of it
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  std::string buffer_;
};

}  // namespace tandem
