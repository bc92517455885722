#include "monitor/terminal.h"

#include <langinfo.h>
#include <ncurses.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/errors.h"
#include "monitor/screen.h"
#include "telemetry/human.h"

namespace tandem {
namespace {

class Terminal {
 public:
  explicit Terminal(bool color) {
    std::setlocale(LC_ALL, "");
    utf8_ = std::strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    screen_ = newterm(nullptr, stdout, stdin);
    if (!screen_) {
      const char* name = std::getenv("TERM");
      throw ConfigError(std::string("the terminal '") + (name ? name : "") + "' is not known",
                        "ncurses has no description of it",
                        "set TERM (TERM=xterm), or use `tandem monitor --snapshot`");
    }
    cbreak();
    noecho();
    keypad(stdscr, TRUE);
    nodelay(stdscr, TRUE);
    curs_set(0);
    set_escdelay(25);
    if (color && has_colors()) {
      start_color();
      use_default_colors();
      color_ = true;
      const short pairs[] = {COLOR_GREEN, COLOR_YELLOW, COLOR_RED, COLOR_CYAN};
      for (short i = 0; i < 4; ++i) init_pair(static_cast<short>(i + 1), pairs[i], -1);
    }
  }
  ~Terminal() {
    endwin();
    delscreen(screen_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  bool utf8() const { return utf8_; }

  void draw(const std::vector<ScreenLine>& lines) {
    erase();
    for (size_t row = 0; row < lines.size(); ++row) {
      int column = 0;
      for (const Piece& piece : lines[row]) {
        attrset(attributes(piece.style));
        mvaddstr(static_cast<int>(row), column, piece.text.c_str());
        column += display_width(piece.text);
      }
    }
    attrset(A_NORMAL);
    refresh();
  }

 private:
  attr_t attributes(Style style) const {
    const auto pair = [&](short number, attr_t otherwise) { return color_ ? COLOR_PAIR(number) : otherwise; };
    switch (style) {
      case Style::kPlain:
        return A_NORMAL;
      case Style::kSoft:
        return A_DIM;
      case Style::kBold:
        return A_BOLD;
      case Style::kGood:
        return pair(1, A_NORMAL);
      case Style::kWarn:
        return pair(2, A_BOLD);
      case Style::kBad:
        return pair(3, A_BOLD) | A_BOLD;
      case Style::kAccent:
        return pair(4, A_NORMAL);
      case Style::kBar:
        return A_REVERSE;
    }
    return A_NORMAL;
  }
  SCREEN* screen_ = nullptr;
  bool utf8_ = false, color_ = false;
};

// Ctrl-Z as a descriptor: ncurses' own handler runs wherever the program is, and now and then it was not heard.
class SuspendKey {
 public:
  SuspendKey() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTSTP);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    fd_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  }
  ~SuspendKey() { ::close(fd_); }
  SuspendKey(const SuspendKey&) = delete;
  SuspendKey& operator=(const SuspendKey&) = delete;
  int fd() const { return fd_; }
  // Stops the program with the terminal as it was; returns once it goes on. By the signal itself, not by SIGSTOP: where
  // no shell could bring it back (the only program of a window) the kernel lets it go on.
  void stop() {
    signalfd_siginfo info{};
    [[maybe_unused]] const auto got = ::read(fd_, &info, sizeof info);
    endwin();
    struct sigaction plain {
    }, before{};
    plain.sa_handler = SIG_DFL;
    ::sigaction(SIGTSTP, &plain, &before);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTSTP);
    ::raise(SIGTSTP);
    pthread_sigmask(SIG_UNBLOCK, &set, nullptr);  // it stops here
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    ::sigaction(SIGTSTP, &before, nullptr);
    refresh();
  }

 private:
  int fd_ = -1;
};

enum class Key { kNone, kQuit, kChanged };

Key press(int key, ScreenState& state, int page) {
  switch (key) {
    case 'q':
    case 'Q':
      return Key::kQuit;
    case 'h':
    case '?':
      state.help = !state.help;
      break;
    case 27:
      state.help = false;
      break;
    case 'p':
      state.processes = !state.processes;
      break;
    case 'r':
      state.ranks = !state.ranks;
      break;
    case ' ':
      state.paused = !state.paused;
      break;
    case KEY_DOWN:
    case 'j':
      ++state.scroll;
      break;
    case KEY_UP:
    case 'k':
      --state.scroll;
      break;
    case KEY_NPAGE:
      state.scroll += page;
      break;
    case KEY_PPAGE:
      state.scroll -= page;
      break;
    case KEY_HOME:
      state.scroll = 0;
      break;
    case KEY_END:
      state.scroll = 1 << 20;
      break;
    case KEY_RESIZE:
      break;
    default:
      return Key::kNone;
  }
  return Key::kChanged;
}

}  // namespace

int show_in_terminal(SampleFeed& feed, History& history, int stop_fd, const TerminalOptions& options) {
  Trails trails;
  trails.begin_with(history.read(unix_now(), Trails::kPoints));
  SuspendKey suspend;
  Terminal terminal(options.color);
  ScreenState state;
  state.utf8 = terminal.utf8();
  MonitorSample sample;
  sample.time = unix_now();
  bool any = false;
  int64_t seen = 0;
  for (;;) {
    pollfd waits[] = {
        {stop_fd, POLLIN, 0}, {feed.fd(), POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}, {suspend.fd(), POLLIN, 0}};
    const int ready = ::poll(waits, 4, 1000);  // a signal (another size) ends it too
    if (ready > 0 && waits[0].revents) return -1;
    bool changed = ready <= 0;
    if (ready > 0 && waits[3].revents) {
      suspend.stop();
      changed = true;
    }
    if (ready > 0 && waits[1].revents) {
      if (auto next = feed.take()) {
        trails.add(*next);
        history.add(*next);
        if (!state.paused || !any) sample = std::move(*next);
        any = changed = true;
        if (options.count > 0 && ++seen >= options.count) return 0;
      }
    }
    for (int key; (key = getch()) != ERR;) {
      const Key what = press(key, state, std::max(1, LINES - 3));
      if (what == Key::kQuit) return 0;
      changed = changed || what == Key::kChanged;
    }
    if (ready > 0 && (waits[2].revents & (POLLHUP | POLLERR))) return -1;  // the terminal is gone
    if (!changed) continue;
    state.waited_s = std::max(0.0, feed.waited() - options.interval_s);
    state.note = history.trouble().empty() ? "" : "history: " + history.trouble();
    terminal.draw(draw_screen(sample, trails, state, COLS, LINES));
  }
}

}  // namespace tandem
