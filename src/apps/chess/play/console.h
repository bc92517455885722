// apps/chess/play/console.h -- where a game is played by typing: a terminal, or a pipe for scripts.
//
// Ctrl-C, SIGTERM and SIGHUP are taken as the end of the input, also while a player thinks, so that the game can still
// be written. Ctrl-Z works as ever.
#pragma once

#include <signal.h>

#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "apps/chess/play/line_reader.h"

namespace tandem::chess {

class Console {
 public:
  Console(int in_fd, int out_fd);
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  // The next typed line; nothing at the end of the input. The prompt is shown on terminals only.
  std::optional<std::string> line(std::string_view prompt);
  void write(std::string_view text);
  // Does `work` in another thread, and returns when it is done; each signal asks it to stop. Throws what it throws.
  void do_stoppable(const std::function<void(std::stop_token)>& work);

  // The signal that ended the input; 0: none did.
  int signal_number() const { return signal_; }
  // Nobody reads what is written.
  bool closed() const { return closed_; }

 private:
  void take_signal();

  int out_fd_;
  bool prompts_;
  sigset_t signals_, before_;
  int signal_fd_;
  int signal_ = 0;
  bool closed_ = false;
  LineReader lines_;
};

}  // namespace tandem::chess
