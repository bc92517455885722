// apps/web_test/timer.h -- the lines that make a machine train every day and every week by itself.
#pragma once

#include <string>
#include <vector>

namespace tandem {

struct TimedCommand {
  std::string name;      // "tandem-daily": of the unit files and the log
  std::string calendar;  // as systemd writes it: "*-*-* 03:00:00"
  std::string cron;      // "0 3 * * *"
  std::string folder;    // where it runs
  std::vector<std::string> words;
};

std::string for_shell(const std::string& word);  // quoted where it must be
std::string systemd_service(const TimedCommand& command);
std::string systemd_timer(const TimedCommand& command);
std::string cron_line(const TimedCommand& command);
// All of them with where they go, as a text to read and copy.
std::string timer_text(const std::vector<TimedCommand>& commands);

}  // namespace tandem
