#include "video/ffmpeg/av_common.h"

#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <utility>

#include "base/printable.h"

namespace tandem {
namespace {

std::mutex complaint_mutex;
std::string last_complaint;

void note_complaint(void* /*object*/, int level, const char* format, va_list arguments) {
  if (level > AV_LOG_ERROR) return;
  char text[400];
  std::vsnprintf(text, sizeof text, format, arguments);
  std::string line = text;
  while (!line.empty() && (line.back() == '\n' || line.back() == '.')) line.pop_back();
  if (line.empty()) return;
  const std::lock_guard lock(complaint_mutex);
  last_complaint = printable(line);
}

}  // namespace

std::string av_words(int error) {
  char text[AV_ERROR_MAX_STRING_SIZE] = {};
  av_strerror(error, text, sizeof text);
  return text;
}

std::string take_av_complaint() {
  const std::lock_guard lock(complaint_mutex);
  return std::exchange(last_complaint, "");
}

void keep_av_complaints() { av_log_set_callback(note_complaint); }

}  // namespace tandem
