#include "apps/web_test/timer.h"

#include <fmt/format.h>

namespace tandem {
namespace {

bool is_plain(const std::string& word) {
  return !word.empty() && word.find_first_not_of(
                              "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                              "-_./,:=@+") == std::string::npos;
}

// systemd: % and $ mean something else, and quotes are C's.
std::string for_systemd(const std::string& word) {
  std::string out;
  for (const char c : word) {
    if (c == '%' || c == '$') out += c;
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return is_plain(word) ? word : "\"" + out + "\"";
}

// A shell's word in a crontab, where % is the end of the line.
std::string for_cron(const std::string& word) {
  std::string out;
  for (const char c : for_shell(word)) out += c == '%' ? "\\%" : std::string(1, c);
  return out;
}

template <typename Quote>
std::string joined(const std::vector<std::string>& words, const Quote& quote) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + quote(word);
  return out;
}

}  // namespace

std::string for_shell(const std::string& word) {
  if (is_plain(word)) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

std::string systemd_service(const TimedCommand& command) {
  return fmt::format("[Unit]\nDescription={}\n\n[Service]\nType=oneshot\nWorkingDirectory={}\nExecStart={}\nNice=10\n",
                     command.name, command.folder, joined(command.words, for_systemd));
}

std::string systemd_timer(const TimedCommand& command) {
  return fmt::format(
      "[Unit]\nDescription={}\n\n[Timer]\nOnCalendar={}\nPersistent=true\n\n[Install]\nWantedBy=timers.target\n",
      command.name, command.calendar);
}

std::string cron_line(const TimedCommand& command) {
  return fmt::format("{} cd {} && {} >> {}.log 2>&1", command.cron, for_cron(command.folder),
                     joined(command.words, for_cron), command.name);
}

std::string timer_text(const std::vector<TimedCommand>& commands) {
  std::string text =
      "# systemd, as this user; then `systemctl --user daemon-reload` and `systemctl --user enable --now";
  for (const TimedCommand& command : commands) text += " " + command.name + ".timer";
  text += "`\n";
  for (const TimedCommand& command : commands)
    text += fmt::format("\n# ~/.config/systemd/user/{0}.service\n{1}\n# ~/.config/systemd/user/{0}.timer\n{2}",
                        command.name, systemd_service(command), systemd_timer(command));
  text += "\n# or cron: `crontab -e`\n";
  for (const TimedCommand& command : commands) text += cron_line(command) + "\n";
  return text;
}

}  // namespace tandem
