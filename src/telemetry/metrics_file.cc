#include "telemetry/metrics_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/errors.h"
#include "base/plain_file.h"

namespace tandem {
namespace {

constexpr size_t kGiveUpAt = 4 << 20;
constexpr size_t kBlock = 256 << 10;
constexpr size_t kBadLinesKept = 100;

// Blocks of a file, to the end; nothing if it is not there.
template <typename Take>
void for_each_block(const std::filesystem::path& path, Take take) {
  FileSystem& fs = FileSystem::real();
  if (!fs.exists(path)) return;
  OpenFile file(fs, fs.open_read(path));
  std::vector<char> block(kBlock);
  while (const size_t n = fs.read(file.handle(), std::as_writable_bytes(std::span(block))))
    take(std::string_view(block.data(), n));
}

}  // namespace

MetricsWriter::MetricsWriter(std::filesystem::path path) : path_(std::move(path)) {
  fd_ = open_plain_file(path_, O_RDWR | O_APPEND);
  // A line torn by an earlier death must not swallow our first one.
  char last = '\n';
  const off_t size = ::lseek(fd_, 0, SEEK_END);
  if (size > 0 && ::pread(fd_, &last, 1, size - 1) == 1 && last != '\n') buffer_.push_back('\n');
}

MetricsWriter::~MetricsWriter() {
  try {
    flush();
  } catch (const IoError&) {  // nobody is left to report it to
  }
  ::close(fd_);
}

void MetricsWriter::add(const StepRecord& record, double time) {
  if (buffer_.size() > kGiveUpAt) {
    ++dropped_;
    return;
  }
  append_metrics_line(buffer_, record, time);
  if (buffer_.size() >= flush_at_) flush();
}

void MetricsWriter::flush() {
  size_t done = 0;
  int error = 0;
  while (done < buffer_.size() && error == 0) {
    const ssize_t n = ::write(fd_, buffer_.data() + done, buffer_.size() - done);
    if (n >= 0)
      done += static_cast<size_t>(n);
    else if (errno != EINTR)
      error = errno;
  }
  std::memmove(buffer_.data(), buffer_.data() + done, buffer_.size() - done);
  buffer_.resize(buffer_.size() - done);
  flush_at_ = buffer_.size() + kFlushAt;  // a full disk is tried again after the next 64 KB, not at every record
  if (error)
    throw IoError(fmt::format("cannot write {}", path_.string()), error, "free space on this disk; the run goes on");
}

void MetricsParser::feed(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, end);
    if (!skipping_ && pending_.size() + piece.size() > kLongestMetricsLine) {
      skipping_ = true;
      pending_.clear();
    }
    if (end == std::string_view::npos) {
      if (!skipping_) pending_.append(piece);
      return;
    }
    if (skipping_) {
      pending_.assign(kLongestMetricsLine + 1, ' ');  // only its length counts: the parser names it too long
      line(pending_);
    } else if (pending_.empty()) {
      line(piece);
    } else {
      pending_.append(piece);
      line(pending_);
    }
    pending_.clear();
    skipping_ = false;
    bytes.remove_prefix(end + 1);
  }
}

void MetricsParser::line(std::string_view text) {
  ++line_number_;
  if (text.find_first_not_of(" \t\r") == std::string_view::npos && text.size() <= kLongestMetricsLine) return;
  if (parse_metrics_line(text, record_, reason_)) {
    ++result_.records;
    take_(record_);
    return;
  }
  ++result_.bad_count;
  if (result_.bad.size() < kBadLinesKept) result_.bad.push_back({line_number_, reason_});
}

MetricsRead MetricsParser::finish() {
  result_.torn = skipping_ || !pending_.empty();
  return std::move(result_);
}

MetricsRead read_metrics(const std::filesystem::path& path, const std::function<void(const StepRecord&)>& take) {
  MetricsParser parser(take);
  for_each_block(path, [&](std::string_view block) { parser.feed(block); });
  return parser.finish();
}

int64_t cut_metrics(const std::filesystem::path& path, int64_t last_step, FileSystem& fs) {
  int64_t dropped = 0;
  const MetricsRead read = read_metrics(path, [&](const StepRecord& r) { dropped += r.step > last_step; });
  if (dropped == 0 && !read.torn) return 0;

  auto temporary = path;
  temporary += fmt::format(".tmp-{}", ::getpid());
  OpenFile out(fs, fs.open_new(temporary));
  try {
    std::string kept, pending;
    bool skipping = false;
    StepRecord record;
    std::string reason;
    const auto keep = [&](std::string_view line) {  // with its newline
      const bool record_past = parse_metrics_line(line, record, reason) && record.step > last_step;
      if (!record_past && !skipping && line.size() <= kLongestMetricsLine) kept.append(line);
    };
    for_each_block(path, [&](std::string_view block) {
      for (size_t end; (end = block.find('\n')) != std::string_view::npos; block.remove_prefix(end + 1)) {
        pending.append(block.substr(0, end + 1));
        keep(pending);
        pending.clear();
        skipping = false;
      }
      pending.append(block);
      if (pending.size() > kLongestMetricsLine) skipping = true, pending.clear();
      out.write_all(std::as_bytes(std::span(kept)));
      kept.clear();
    });
    fs.fsync(out.handle());
    out.close();
    fs.rename(temporary, path);
    fs.fsync_dir(path.parent_path());
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  return dropped;
}

}  // namespace tandem
