#include "telemetry/event_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "base/plain_file.h"
#include "telemetry/atomic_file.h"
#include "telemetry/human.h"

namespace tandem {
namespace {
constexpr size_t kKeptAtEachEnd = 5000;
}

LineFile::LineFile(std::filesystem::path path) : path_(std::move(path)) {
  fd_ = open_plain_file(path_, O_WRONLY | O_APPEND);
}
LineFile::~LineFile() { ::close(fd_); }

void LineFile::add(std::string_view line) {
  std::string text(line);
  text += '\n';
  ssize_t n;
  do n = ::write(fd_, text.data(), text.size());
  while (n < 0 && errno == EINTR);
  if (n != static_cast<ssize_t>(text.size()))
    throw IoError(fmt::format("cannot write {}", path_.string()), n < 0 ? errno : ENOSPC,
                  "free space on this disk; the run goes on");
}

std::string event_line(const RunEvent& event) {
  const nlohmann::json line = {{"t", event.time}, {"kind", event.kind}, {"step", event.step}, {"text", event.text}};
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::vector<RunEvent> read_events(const std::filesystem::path& path) {
  std::vector<RunEvent> events;
  std::deque<RunEvent> tail;
  const auto text = read_small_file(path);
  if (!text) return events;
  size_t from = 0;
  for (size_t end; (end = text->find('\n', from)) != std::string::npos; from = end + 1) {
    const auto line = nlohmann::json::parse(text->begin() + static_cast<ptrdiff_t>(from),
                                            text->begin() + static_cast<ptrdiff_t>(end), nullptr, false);
    if (!line.is_object()) continue;
    const auto get = [&](const char* key) { return line.contains(key) ? line[key] : nlohmann::json(); };
    if (!get("kind").is_string() || !get("text").is_string() || !get("t").is_number() ||
        !get("step").is_number_integer())
      continue;
    RunEvent event{get("t"), get("kind"), get("step"), get("text")};
    if (events.size() < kKeptAtEachEnd)
      events.push_back(std::move(event));
    else
      tail.push_back(std::move(event));
    if (tail.size() > kKeptAtEachEnd) tail.pop_front();
  }
  std::move(tail.begin(), tail.end(), std::back_inserter(events));
  return events;
}

std::string log_line(double unix_seconds, std::string_view level, std::string_view text) {
  std::string line = fmt::format("{} {:<5} ", utc_iso(unix_seconds, true), level);
  for (const char c : text) {
    if (c == '\n')
      line += "\n    ";
    else if (static_cast<unsigned char>(c) >= 0x20 || c == '\t')
      line += c;  // escape codes stay out of files
  }
  return line;
}

}  // namespace tandem
