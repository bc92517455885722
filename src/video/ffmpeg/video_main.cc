// tandem-video -- reads and writes videos for tandem, in a process of its own. For people: `tandem-video probe FILE`.
//
//   probe FILE                         a line of JSON
//   decode FILE [--size HxW]           that line; then for each frame 'F' and its gray bytes; at the end 'E' and a line
//   decode FILE [--size HxW] --raw     the gray bytes alone
//   encode FILE --size HxW --rate R [--lossless]    reads frames as decode writes them, an mp4 is made at 'E'
// What goes wrong is a line of JSON {"error", "why", "do"} on stdout, or on stderr for people (--raw, encode). Exit
// codes as tandem's. Memory and time are limited before the first byte is read: videos may come from anybody.
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/errors.h"
#include "base/printable.h"
#include "video/ffmpeg/av_common.h"
#include "video/ffmpeg/decoder.h"
#include "video/ffmpeg/encoder.h"

namespace tandem {
namespace {

constexpr rlim_t kMostMemory = rlim_t{4} << 30;
constexpr rlim_t kMostCpuSeconds = 4 * 3600;
constexpr rlim_t kMostWords = 1 << 16;  // bytes on stderr, where that is a file
constexpr int32_t kMostSide = 8192;

struct VideoCommand {
  std::string verb, file;
  int32_t height = 0, width = 0;
  double rate = 30;
  bool raw = false, lossless = false;
};

[[noreturn]] void refuse_usage(std::string what) {
  throw ConfigError(std::move(what), "it takes: probe FILE; decode FILE [--size HxW] [--raw]; encode FILE --size HxW",
                    "`tandem data prepare video DIR` decodes whole folders");
}

void read_size(std::string_view text, VideoCommand& command) {
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, command.height);
  if (error == std::errc() && end != last && *end == 'x') {
    const auto [after, wrong] = std::from_chars(end + 1, last, command.width);
    if (wrong == std::errc() && after == last && command.height >= 1 && command.width >= 1 &&
        command.height <= kMostSide && command.width <= kMostSide)
      return;
  }
  refuse_usage(fmt::format("--size {} is no size", printable(text)));
}

VideoCommand read_command(int argc, char** argv) {
  VideoCommand command;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const bool more = i + 1 < argc;
    if (word == "--size" && more)
      read_size(argv[++i], command);
    else if (word == "--rate" && more)
      command.rate = std::atof(argv[++i]);
    else if (word == "--raw")
      command.raw = true;
    else if (word == "--lossless")
      command.lossless = true;
    else if (word.starts_with("--"))
      refuse_usage(fmt::format("unknown flag {}", printable(word)));
    else if (command.verb.empty())
      command.verb = word;
    else if (command.file.empty())
      command.file = word;
    else
      refuse_usage(fmt::format("one word too many: {}", printable(word)));
  }
  const bool known = command.verb == "probe" || command.verb == "decode" || command.verb == "encode";
  if (!known || command.file.empty()) refuse_usage(known ? "which file?" : "what is to be done?");
  return command;
}

void limit(int what, rlim_t most) {
  const rlimit wanted{most, most};
  setrlimit(what, &wanted);  // a lower limit of the user's stays
}

bool into_a_pipe() {
  struct stat info {};
  return fstat(STDOUT_FILENO, &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode));
}

void limit_process(bool reads_only) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which map terabytes
  limit(RLIMIT_AS, kMostMemory);
#endif
  limit(RLIMIT_CPU, kMostCpuSeconds);
  limit(RLIMIT_CORE, 0);
  if (!reads_only) return;
  limit(RLIMIT_FSIZE, kMostWords);  // files alone: what goes into a pipe is no file
  signal(SIGXFSZ, SIG_IGN);
}

void write_all(const void* data, size_t size) {
  if (std::fwrite(data, 1, size, stdout) != size) std::exit(static_cast<int>(ExitCode::kFailed));  // nobody reads
}
void write_line(const nlohmann::json& line) {
  const std::string text = line.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
  write_all(text.data(), text.size());
}

nlohmann::json json_of(const VideoFacts& facts) {
  return {{"height", facts.height},
          {"width", facts.width},
          {"frames", facts.frames},
          {"frames_per_second", facts.frames_per_second},
          {"variable_rate", facts.variable_rate},
          {"rotation", facts.rotation},
          {"codec", facts.codec}};
}

void decode(const VideoCommand& command) {
  FfmpegDecoder decoder(command.file);
  if (!command.raw) write_line(json_of(decoder.facts()));
  const DecodedVideo done = decoder.decode(command.height, command.width, [&](std::span<const uint8_t> frame) {
    if (!command.raw) write_all("F", 1);
    write_all(frame.data(), frame.size());
    return true;
  });
  if (command.raw) {
    if (!done.trouble.empty()) std::fprintf(stderr, "warning: %s\n", done.trouble.c_str());
    return;
  }
  write_all("E", 1);
  write_line({{"frames", done.frames}, {"trouble", done.trouble}});
}

void encode(const VideoCommand& command) {
  if (command.height == 0) refuse_usage("encode needs --size HxW");
  FfmpegEncoder encoder(command.file, {command.height, command.width, command.rate, command.lossless});
  std::vector<uint8_t> frame(static_cast<size_t>(command.height) * static_cast<size_t>(command.width));
  while (true) {
    const int mark = std::getchar();
    if (mark == 'E') break;
    // Whoever sent the frames is gone: a video that looks whole must not be left.
    if (mark != 'F' || std::fread(frame.data(), 1, frame.size(), stdin) != frame.size()) {
      unlink(command.file.c_str());
      throw Error(ExitCode::kFailed, "the frames end early", "who sent them is gone", "run it again");
    }
    encoder.add(frame);
  }
  encoder.finish();
}

int run(int argc, char** argv) {
  VideoCommand command;
  try {
    if (argc == 2 && std::string_view(argv[1]) == "--version") {
      std::printf("tandem-video %s, FFmpeg's libavcodec %u.%u\n", TANDEM_VERSION, avcodec_version() >> 16,
                  avcodec_version() >> 8 & 255);
      return 0;
    }
    command = read_command(argc, argv);
    limit_process(command.verb != "encode" && into_a_pipe());
    if (command.verb == "probe") write_line(json_of(FfmpegDecoder(command.file).facts()));
    if (command.verb == "decode") decode(command);
    if (command.verb == "encode") encode(command);
    return std::fflush(stdout) == 0 ? 0 : static_cast<int>(ExitCode::kFailed);
  } catch (const Error& error) {
    if ((command.verb == "probe" || command.verb == "decode") && !command.raw && into_a_pipe())
      write_line({{"error", error.what()}, {"why", error.why()}, {"do", error.todo()}});
    else
      std::fputs(error.render().c_str(), stderr);
    return static_cast<int>(error.code());
  } catch (const std::bad_alloc&) {
    std::fputs("error: a video needs more memory than it may have\n", stderr);
    return static_cast<int>(ExitCode::kFailed);
  }
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) { return tandem::run(argc, argv); }
