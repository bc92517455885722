#include "command/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/printable.h"

namespace tandem {
namespace {

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value && *value;
}

void write(FILE* stream, std::string_view text) { std::fwrite(text.data(), 1, text.size(), stream); }

}  // namespace

bool wants_color(int fd, bool no_color_flag) {
  if (no_color_flag || is_set("NO_COLOR")) return false;
  if (is_set("CLICOLOR_FORCE") && std::string_view(std::getenv("CLICOLOR_FORCE")) != "0") return true;
  const char* term = std::getenv("TERM");
  if (term && std::string_view(term) == "dumb") return false;
  return isatty(fd) != 0;
}

Output::Output(bool json, bool quiet, bool verbose, bool no_color)
    : json_(json), quiet_(quiet), verbose_(verbose), color_(wants_color(STDERR_FILENO, no_color)) {}

void Output::data(std::string_view text) const { write(stdout, text); }

void Output::path(std::string_view path) const {
  data(isatty(STDOUT_FILENO) ? printable(path) : std::string(path));
  data("\n");
}

void Output::object(nlohmann::json object) const {
  object["schema"] = kJsonSchema;
  // A name on disk may hold any bytes; a script must still get valid JSON.
  data(object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

void Output::say(std::string_view line) const {
  if (!quiet_) write(stderr, printable_lines(line) + "\n");
}

void Output::detail(std::string_view line) const {
  if (verbose_ && !quiet_) write(stderr, printable_lines(line) + "\n");
}

void Output::warn(std::string_view line) const {
  write(stderr,
        fmt::format("{}warning:{} {}\n", color_ ? "\x1b[33m" : "", color_ ? "\x1b[0m" : "", printable_lines(line)));
}

void Output::error(const Error& error) const {
  std::string text = printable_lines(error.render());
  constexpr std::string_view kWord = "error:";
  if (color_ && text.starts_with(kWord)) text.replace(0, kWord.size(), "\x1b[31merror:\x1b[0m");
  write(stderr, text);
  if (json_) {
    object({{"error",
             {{"what", error.what()},
              {"why", error.why()},
              {"do", error.todo()},
              {"code", static_cast<int>(error.code())}}}});
  }
}

void Output::flush() const {
  if (std::fflush(stdout) != 0 || std::ferror(stdout)) {
    throw IoError("cannot write to stdout", errno ? errno : EIO, "check the disk or the program that reads it");
  }
}

}  // namespace tandem
