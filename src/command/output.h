// command/output.h -- where a command's words go: data on stdout, talk on stderr, one JSON object with --json.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/errors.h"

namespace tandem {

inline constexpr int kJsonSchema = 1;  // raised when a key of --json changes its meaning or goes

class Output {
 public:
  Output(bool json, bool quiet, bool verbose, bool no_color);

  bool json() const { return json_; }
  bool quiet() const { return quiet_; }
  bool verbose() const { return verbose_; }
  bool color() const { return color_; }  // of stderr

  // What goes to stderr is cleaned: text of strangers can't steer the terminal (base/printable.h).
  void data(std::string_view text) const;    // stdout, as it is
  void path(std::string_view path) const;    // stdout, a line: byte for byte for a script, cleaned for a terminal
  void object(nlohmann::json object) const;  // stdout, with "schema" added
  void say(std::string_view line) const;     // stderr, unless quiet
  void detail(std::string_view line) const;  // stderr, with -v
  void warn(std::string_view line) const;    // stderr, always
  void error(const Error& error) const;      // stderr; with --json the object {"error": {...}} on stdout too
  void flush() const;                        // throws IoError if stdout could not take the data (a full disk)

 private:
  bool json_, quiet_, verbose_, color_;
};

// NO_COLOR and TERM=dumb forbid, CLICOLOR_FORCE demands, else a terminal decides.
bool wants_color(int fd, bool no_color_flag);

}  // namespace tandem
