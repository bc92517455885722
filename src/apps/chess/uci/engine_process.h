// apps/chess/uci/engine_process.h -- a chess engine as a process with pipes: lines in and out, each with a deadline.
//
// What an engine does can't hurt the program: a line has a longest length and an answer a largest size (which grows
// with time, since an analysis may take days), its words on stderr are read and their end is kept, a pipe that it does
// not read from is not waited for beyond the deadline. It has its own process group, so that Ctrl-C in the terminal is
// ours to act on; it ends when this program ends, however that ends. Deadlines are times of monotonic_seconds()
// (base/clock.h).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::chess {

struct EngineBounds {
  size_t longest_line = size_t{64} << 10;  // bytes
  size_t most_output = size_t{64} << 20;   // bytes of one answer to `go`,
  size_t output_a_second = 1 << 20;        // and so many more for each second that it takes
  size_t most_greeting = size_t{1} << 20;  // bytes until it is ready
  size_t last_words = 2000;                // bytes of stderr that are kept
};

class EngineProcess {
 public:
  // `arguments` are the words of its command line. Throws PlayerFault where the program can't be run, IoError where
  // there is no room for a process.
  explicit EngineProcess(const std::filesystem::path& program, const std::vector<std::string>& arguments = {},
                         EngineBounds bounds = {});
  ~EngineProcess();  // kills it and what it has started
  EngineProcess(const EngineProcess&) = delete;
  EngineProcess& operator=(const EngineProcess&) = delete;

  enum class Sent : uint8_t { kSent, kEnded, kLate };
  // The line, and its end. Once wake_fd can be read, there are `woken_seconds` left for it. Once a line was not taken
  // as a whole, the engine is of no use.
  Sent send(std::string_view line, double deadline, int wake_fd = -1, double woken_seconds = 0);

  // The output is counted from here on.
  void begin_greeting() { begin_output(bounds_.most_greeting, 0); }
  void begin_answer() { begin_output(bounds_.most_output, bounds_.output_a_second); }
  enum class Got : uint8_t {
    kLine,
    kEnded,  // the process ended or closed its output; all lines before were given
    kLate,   // none before the deadline; what is in the pipe by then is still read
    kWoken,  // wake_fd can be read
    kFlood,  // a line or an answer beyond its bound
  };
  // The next line, without its end.
  Got read_line(std::string& line, double deadline, int wake_fd = -1);

  // How it ended: "it ended with exit status 3", "it was ended by signal 11 (Segmentation fault)", "it closed its
  // output". Waits a moment for the end, then kills it.
  std::string ending();
  // The end of what it said on stderr, cleaned, in one line; may be empty.
  std::string last_words();
  // Says quit and waits for the end, at most until the deadline; then kills it.
  void quit(double deadline);
  pid_t pid() const { return pid_; }

 private:
  void begin_output(size_t most, size_t a_second);
  bool floods() const;
  bool take_line(std::string& line);
  void read_errors();
  bool fill();  // reads what is there; false at the end of output
  bool ends_before(double deadline);
  void kill_group();

  EngineBounds bounds_;
  pid_t pid_ = -1;
  int pidfd_ = -1, in_ = -1, out_ = -1, err_ = -1;
  std::string buffer_, errors_;
  size_t begin_ = 0;     // of what no line was made of yet, in buffer_
  size_t searched_ = 0;  // up to here it has no end of line
  size_t output_ = 0, most_ = 0, a_second_ = 0;
  double output_began_ = 0;
  int late_reads_ = 0;   // after the deadline
  bool closed_ = false;  // its output
  bool reaped_ = false;
  int status_ = 0;
};

}  // namespace tandem::chess
