// cli/monitor.cc -- `tandem monitor`: GPUs and runs as they are now, in the form that was asked for.
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <climits>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/errors.h"
#include "cli/commands.h"
#include "command/sources.h"
#include "monitor/formats.h"
#include "monitor/http_server.h"
#include "monitor/sample_feed.h"
#include "monitor/sample_history.h"
#include "monitor/terminal.h"
#include "monitor/web.h"
#include "runs/run_folder.h"

namespace tandem {
namespace {

constexpr double kDriverSeconds = 30;  // some drivers need many seconds to wake their GPUs

void check(const MonitorArguments& m) {
  if (m.interval && !(*m.interval >= 0.05 && *m.interval <= 3600))
    throw ConfigError(fmt::format("--interval {} is out of range", *m.interval), "it is the seconds between two looks",
                      "give 0.05 to 3600, as in --interval 1");
  if (m.count && *m.count < 1)
    throw ConfigError("--count must be at least 1", "it is the number of looks", "leave it out to go on until Ctrl-C");
  if (m.port < 0 || m.port > 65535)
    throw ConfigError(fmt::format("--port {} is no port", m.port), "ports are 1 to 65535; 0 takes a free one",
                      "leave it out, or give another");
  if (m.prometheus && (m.interval || m.count.value_or(1) > 1))
    throw ConfigError(
        "--prometheus gives one look", "a second one in the same text would be a broken text to a scraper",
        "leave --interval and --count out; `tandem monitor --web` serves /metrics as often as it is asked");
  if (!m.history.empty() && !m.no_history) History::check_is_ours(m.history);
}

MonitorSamplerOptions sampler_options(const Command& command) {
  MonitorSamplerOptions options;
  const std::filesystem::path root = runs_root(command.arguments);
  for (const std::string& name : command.arguments.subjects) options.runs.push_back(RunFolder::find(root, name).dir());
  options.roots.push_back(root);
  options.find_processes = !command.arguments.runs_root;  // a root that was named is all that was asked for
  return options;
}

// What ends it, as a descriptor to wait for: Ctrl-C, SIGTERM, and those that would leave a terminal as it is (Ctrl-\, a
// window that is closed).
class Pause {
 public:
  Pause() {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : {SIGINT, SIGTERM, SIGQUIT, SIGHUP}) sigaddset(&set, signal);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    fd_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  }
  ~Pause() { ::close(fd_); }
  Pause(const Pause&) = delete;
  Pause& operator=(const Pause&) = delete;
  int fd() const { return fd_; }
  int code() {
    signalfd_siginfo info{};
    if (::read(fd_, &info, sizeof info) != sizeof info) return 0;
    const bool terminated = info.ssi_signo == SIGTERM || info.ssi_signo == SIGHUP;
    return static_cast<int>(terminated ? ExitCode::kTerminated : ExitCode::kInterrupted);
  }

 private:
  int fd_ = -1;
};

std::filesystem::path history_file(const MonitorArguments& m) {
  if (m.no_history) return "";
  return m.history.empty() ? History::default_file() : std::filesystem::path(m.history);
}

int text_width() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : INT_MAX;
}

// Shows `count` looks; 0: until a signal. A driver that hangs holds neither Ctrl-C nor, of one look, the caller.
int stream(const Command& command, double interval, int64_t count,
           const std::function<void(const MonitorSample&)>& show) {
  Pause pause;
  SampleFeed feed(sampler_options(command), interval);
  bool warned = false;
  for (int64_t i = 0; count == 0 || i < count;) {
    pollfd waits[] = {{pause.fd(), POLLIN, 0}, {feed.fd(), POLLIN, 0}};
    ::poll(waits, 2, 1000);
    if (waits[0].revents) return pause.code();
    if (const auto sample = feed.take()) {
      show(*sample);
      command.output.flush();  // ends it where nobody reads any more
      ++i;
      warned = false;
      continue;
    }
    const double waited = feed.waited() - interval;
    if (waited < kDriverSeconds || warned) continue;
    if (count == 1)
      throw Error(ExitCode::kFailed, fmt::format("the driver has not answered for {:.0f} s", waited),
                  "a GPU that falls off the bus can hold every call to the driver",
                  "see whether `nvidia-smi` hangs too; `dmesg` names the GPU; a reboot brings it back");
    command.output.warn(fmt::format("the driver has not answered for {:.0f} s; waiting for it", waited));
    warned = true;
  }
  return 0;
}

std::string shown_host(const std::string& host, const std::string& machine) {
  if (host == "0.0.0.0" || host == "::") return machine;
  return host.find(':') != std::string::npos ? "[" + host + "]" : host;
}

int serve(const Command& command, MonitorSamplerOptions options) {
  const MonitorArguments& m = command.arguments.monitor;
  const std::string token = m.token_file.empty() ? new_token() : token_of_file(m.token_file);
  char machine[256] = {};
  ::gethostname(machine, sizeof machine - 1);
  History history(history_file(m));
  std::string last_trouble;
  const auto report_trouble = [&] {
    if (history.trouble() == last_trouble) return;
    last_trouble = history.trouble();
    command.output.warn(fmt::format("history: {}", last_trouble));
  };
  if (history.in_memory() && history.trouble().empty() && !m.no_history)
    command.output.warn("history: there is no HOME, so it is kept in memory; --history names a file");
  report_trouble();
  MonitorSite* site = nullptr;
  HttpServer server(m.host, static_cast<int>(m.port),
                    [&](const HttpRequest& request) { return site->answer(request); });
  const double interval = m.interval.value_or(1);
  MonitorSite the_site(token, machine, server.loopback(), history, 15 + 2 * interval, interval);
  the_site.also_called(m.host);
  site = &the_site;
  Pause pause;
  SampleFeed feed(std::move(options), interval);
  command.output.data(fmt::format("http://{}:{}/?token={}\n", shown_host(m.host, machine), server.port(), token));
  command.output.flush();
  if (server.loopback()) {
    const char* user = std::getenv("USER");
    command.output.say(
        fmt::format("from another machine: ssh -L {0}:127.0.0.1:{0} {1}{2}, then open the same address there",
                    server.port(), user && *user ? fmt::format("{}@", user) : "", machine));
  } else {
    command.output.warn(fmt::format(
        "it listens on {}, beyond this machine: whoever has the token can look, and the token travels unencrypted. "
        "Without --host it stays here, and ssh -L brings it to you",
        m.host));
  }
  command.output.say("Ctrl-C ends it");
  for (int64_t looks = 0;;) {
    const int ready = server.serve_until(monotonic_seconds() + 60, {pause.fd(), feed.fd()});
    if (ready == 0) return pause.code();
    if (ready != 1) continue;
    const auto sample = feed.take();
    if (!sample) continue;
    the_site.show(*sample);
    history.add(*sample);
    report_trouble();
    server.send_event(the_site.newest_json());
    if (m.count && ++looks >= *m.count) return 0;
  }
}

int show(const Command& command, MonitorSamplerOptions options) {
  const MonitorArguments& m = command.arguments.monitor;
  History history(history_file(m));
  Pause pause;
  SampleFeed feed(std::move(options), m.interval.value_or(1));
  const int ended = show_in_terminal(feed, history, pause.fd(),
                                     {.color = wants_color(STDOUT_FILENO, command.arguments.no_color),
                                      .interval_s = m.interval.value_or(1),
                                      .count = m.count.value_or(0)});
  return ended < 0 ? pause.code() : 0;
}

}  // namespace

int run_monitor(const Command& command) {
  const MonitorArguments& m = command.arguments.monitor;
  const Output& output = command.output;
  check(m);
  if (m.web) return serve(command, sampler_options(command));
  const bool plain = output.json() || m.csv || m.prometheus || m.snapshot;
  const char* term = std::getenv("TERM");
  const bool terminal =
      isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1 && term && std::string_view(term) != "dumb";
  if (!plain && terminal) return show(command, sampler_options(command));
  const double interval = m.interval.value_or(1);
  const int64_t looks = m.count ? *m.count : m.interval ? 0 : 1;
  if (output.json())
    return stream(command, interval, looks, [&](const MonitorSample& sample) { output.object(to_json(sample)); });
  if (m.csv) {
    output.data(csv_header());
    return stream(command, interval, looks, [&](const MonitorSample& sample) { output.data(csv_lines(sample)); });
  }
  if (m.prometheus)
    return stream(command, interval, 1, [&](const MonitorSample& sample) { output.data(prometheus_text(sample)); });
  return stream(command, interval, looks, [&](const MonitorSample& sample) {
    output.data(snapshot_text(sample, text_width()) + (looks == 1 ? "" : "\n"));
  });
}

}  // namespace tandem
