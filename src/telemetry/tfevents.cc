#include "telemetry/tfevents.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>

#include "base/errors.h"
#include "telemetry/crc32c.h"

namespace tandem {
namespace {

constexpr size_t kFlushAt = 256 << 10;
constexpr size_t kMostUnwrittenBytes = 4 << 20;
constexpr std::string_view kPrefix = "events.out.tfevents.";

template <typename Word>
void append_little_endian(std::string& out, Word word) {
  for (size_t i = 0; i < sizeof word; ++i) out.push_back(static_cast<char>(word >> (8 * i)));
}

void append_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}
size_t varint_size(uint64_t value) {
  size_t size = 1;
  while (value >>= 7) ++size;
  return size;
}

// Field numbers of tensorflow.Event, Summary.Value, Summary.Image and SessionLog; the low bits of a key are the wire
// type.
enum Key : char {
  kEventWallTime = 1 << 3 | 1,     // double
  kEventStep = 2 << 3 | 0,         // int64
  kEventFileVersion = 3 << 3 | 2,  // string
  kEventSummary = 5 << 3 | 2,      // Summary
  kEventSessionLog = 7 << 3 | 2,   // SessionLog
  kSummaryValue = 1 << 3 | 2,      // Summary.Value
  kValueTag = 1 << 3 | 2,          // string
  kValueSimple = 2 << 3 | 5,       // float
  kValueImage = 4 << 3 | 2,        // Summary.Image
  kImageHeight = 1 << 3 | 0,       // int32
  kImageWidth = 2 << 3 | 0,        // int32
  kImageColors = 3 << 3 | 0,       // int32, 3 = RGB
  kImageBytes = 4 << 3 | 2,        // the encoded picture
  kSessionStatus = 1 << 3 | 0,     // enum, START = 1
};

void append_event_head(std::string& out, double unix_seconds, int64_t step) {
  out.push_back(kEventWallTime);
  append_little_endian(out, std::bit_cast<uint64_t>(unix_seconds));
  if (step == 0) return;
  out.push_back(kEventStep);
  append_varint(out, static_cast<uint64_t>(step));
}

// Frames what `write_event` appends; lengths and checksums are filled in afterwards, so nothing is copied.
template <typename WriteEvent>
void append_record(std::string& out, WriteEvent write_event) {
  const size_t begin = out.size();
  out.append(12, '\0');
  write_event();
  std::string header;
  append_little_endian(header, static_cast<uint64_t>(out.size() - begin - 12));
  append_little_endian(header, masked_crc32c(header));
  out.replace(begin, 12, header);
  append_little_endian(out, masked_crc32c(std::string_view(out).substr(begin + 12)));
}

std::string event_host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "localhost";
  std::string host = name;
  for (char& c : host)
    if (c == '/') c = '_';
  return host;
}

// Seconds that sort after every event file in the folder: a resume may come in the same second, or after the clock was
// set back.
int64_t next_stamp(const std::filesystem::path& dir, double unix_seconds) {
  auto stamp = static_cast<int64_t>(unix_seconds);
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    int64_t other = 0;
    const auto [end, error] = std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), other);
    if (error == std::errc() && other < 9999999999) stamp = std::max(stamp, other + 1);
  }
  return stamp;
}

}  // namespace

std::string tfevents_version_record(double unix_seconds) {
  static constexpr std::string_view kVersion = "brain.Event:2";
  std::string out;
  append_record(out, [&] {
    append_event_head(out, unix_seconds, 0);
    out.push_back(kEventFileVersion);
    append_varint(out, kVersion.size());
    out.append(kVersion);
  });
  return out;
}

std::string tfevents_start_record(double unix_seconds, int64_t step) {
  std::string out;
  append_record(out, [&] {
    append_event_head(out, unix_seconds, step);
    out.append({kEventSessionLog, 2, kSessionStatus, 1});
  });
  return out;
}

void append_tfevents_scalars(std::string& out, double unix_seconds, int64_t step, std::span<const Scalar> scalars) {
  append_record(out, [&] {
    append_event_head(out, unix_seconds, step);
    const auto value_size = [](const Scalar& s) { return 1 + varint_size(s.tag.size()) + s.tag.size() + 5; };
    size_t summary_size = 0;
    for (const Scalar& s : scalars) summary_size += 1 + varint_size(value_size(s)) + value_size(s);
    out.push_back(kEventSummary);
    append_varint(out, summary_size);
    for (const Scalar& s : scalars) {
      out.push_back(kSummaryValue);
      append_varint(out, value_size(s));
      out.push_back(kValueTag);
      append_varint(out, s.tag.size());
      out.append(s.tag);
      out.push_back(kValueSimple);
      append_little_endian(out, std::bit_cast<uint32_t>(s.value));
    }
  });
}

void append_tfevents_image(std::string& out, double unix_seconds, int64_t step, std::string_view tag, int width,
                           int height, std::string_view png) {
  std::string image, value, summary;
  const auto number = [&](Key key, int n) {
    image.push_back(key);
    append_varint(image, static_cast<uint64_t>(n));
  };
  const auto text = [](std::string& to, Key key, std::string_view bytes) {
    to.push_back(key);
    append_varint(to, bytes.size());
    to.append(bytes);
  };
  number(kImageHeight, height);
  number(kImageWidth, width);
  number(kImageColors, 3);
  text(image, kImageBytes, png);
  text(value, kValueTag, tag);
  text(value, kValueImage, image);
  text(summary, kSummaryValue, value);
  append_record(out, [&] {
    append_event_head(out, unix_seconds, step);
    text(out, kEventSummary, summary);
  });
}

TfEventsWriter::TfEventsWriter(const std::filesystem::path& dir, double unix_seconds, int64_t first_step) {
  const int64_t stamp = next_stamp(dir, unix_seconds);
  const std::string host = event_host_name();
  for (int n = 0; fd_ < 0; ++n) {
    path_ = dir / fmt::format("{}{:010}.{}.{}.{}", kPrefix, stamp, host, ::getpid(), n);
    fd_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ < 0 && errno != EEXIST)
      throw IoError(fmt::format("cannot create {}", path_.string()), errno, "check that the run folder may be written");
  }
  buffer_ = tfevents_version_record(unix_seconds);
  if (first_step > 0) buffer_ += tfevents_start_record(unix_seconds, first_step);
  flush();
}

TfEventsWriter::~TfEventsWriter() {
  try {
    flush();
  } catch (const IoError&) {  // nobody is left to report it to
  }
  ::close(fd_);
}

void TfEventsWriter::add(double unix_seconds, int64_t step, std::span<const Scalar> scalars) {
  if (scalars.empty() || buffer_.size() > kMostUnwrittenBytes) return;
  append_tfevents_scalars(buffer_, unix_seconds, step, scalars);
  if (buffer_.size() >= kFlushAt) flush();
}

void TfEventsWriter::add_image(double unix_seconds, int64_t step, std::string_view tag, int width, int height,
                               std::string_view png) {
  if (buffer_.size() > kMostUnwrittenBytes) return;
  append_tfevents_image(buffer_, unix_seconds, step, tag, width, height, png);
  if (buffer_.size() >= kFlushAt) flush();
}

void TfEventsWriter::flush() {
  size_t done = 0;
  int error = 0;
  while (done < buffer_.size() && error == 0) {
    const ssize_t n = ::write(fd_, buffer_.data() + done, buffer_.size() - done);
    if (n >= 0)
      done += static_cast<size_t>(n);
    else if (errno != EINTR)
      error = errno;
  }
  buffer_.erase(0, done);
  if (error)
    throw IoError(fmt::format("cannot write {}", path_.string()), error, "free space on this disk; the run goes on");
}

}  // namespace tandem
