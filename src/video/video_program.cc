#include "video/video_program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "base/printable.h"
#include "video/draw_text.h"
#include "video/video_process.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

[[noreturn]] void refuse_unreadable(const fs::path& video, std::string why) {
  throw ConfigError(fmt::format("{} can't be read as a video", printable(video.string())), std::move(why),
                    "look whether it plays; copy or encode it again, or take it out of the folder");
}

std::string text_in(const json& line, const char* key) {
  const auto at = line.find(key);
  return at != line.end() && at->is_string() ? at->get<std::string>() : "";
}

// What it says of the video, or what it says is wrong with it.
VideoFacts read_facts(VideoProcess& process, const fs::path& video) {
  const json line = process.read_line();
  if (line.is_null()) refuse_unreadable(video, process.ending());
  if (line.contains("error")) throw ConfigError(text_in(line, "error"), text_in(line, "why"), text_in(line, "do"));
  VideoFacts facts;
  facts.height = line.value("height", 0);
  facts.width = line.value("width", 0);
  facts.frames = line.value("frames", int64_t{0});
  facts.frames_per_second = line.value("frames_per_second", 0.0);
  facts.variable_rate = line.value("variable_rate", false);
  facts.rotation = line.value("rotation", 0);
  facts.codec = printable(text_in(line, "codec"));
  if (facts.height <= 0 || facts.width <= 0) refuse_unreadable(video, "its pictures have no size");
  return facts;
}

std::string absolute_name(const fs::path& file) { return fs::absolute(file).string(); }

}  // namespace

std::optional<VideoProgram> VideoProgram::find() {
  if (const char* named = std::getenv("TANDEM_VIDEO_PROGRAM"); named && *named) return VideoProgram(named);
  std::error_code error;
  const fs::path mine = fs::read_symlink("/proc/self/exe", error);
  const fs::path beside = mine.parent_path() / "tandem-video";
  if (error || access(beside.c_str(), X_OK) != 0) return std::nullopt;
  return VideoProgram(beside);
}

VideoFacts VideoProgram::probe(const fs::path& video) const {
  VideoProcess process(program_, {"probe", absolute_name(video)}, VideoProcess::Talk::kListen);
  return read_facts(process, video);
}

DecodedVideo VideoProgram::decode(const fs::path& video, int32_t height, int32_t width,
                                  const std::function<bool(std::span<const uint8_t>)>& take) const {
  std::vector<std::string> words{"decode", absolute_name(video)};
  if (height > 0) words.insert(words.end(), {"--size", fmt::format("{}x{}", height, width)});
  VideoProcess process(program_, std::move(words), VideoProcess::Talk::kListen);
  DecodedVideo done;
  done.facts = read_facts(process, video);
  const int64_t rows = height > 0 ? height : done.facts.height, columns = height > 0 ? width : done.facts.width;
  std::vector<uint8_t> frame(static_cast<size_t>(rows * columns));
  uint8_t mark = 0;
  while (process.read_exactly(&mark, 1) && mark == 'F' && process.read_exactly(frame.data(), frame.size())) {
    ++done.frames;
    if (!take(frame)) return done;
  }
  const json end = mark == 'E' ? process.read_line() : json();
  done.trouble = end.is_null() ? process.ending() : printable(text_in(end, "trouble"));
  return done;
}

struct VideoWriter::State {
  fs::path final_path, path;
  size_t frame_bytes = 0;
  std::unique_ptr<VideoProcess> process;
  bool finished = false;

  [[noreturn]] void fail() {
    std::string why = process->ending();
    throw Error(ExitCode::kFailed, fmt::format("{} can't be written as a video", printable(final_path.string())),
                why.empty() ? "the encoder ended early" : why, "look at the disk and the name");
  }
};

VideoWriter::VideoWriter(const VideoProgram& program, const fs::path& file, int32_t height, int32_t width,
                         double frames_per_second, bool lossless)
    : state_(std::make_unique<State>()) {
  State& my = *state_;
  my.final_path = file;
  my.path = fs::absolute(file).parent_path() / fmt::format(".tmp-{}-{}", getpid(), file.filename().string());
  my.frame_bytes = static_cast<size_t>(height) * static_cast<size_t>(width);
  std::vector<std::string> words{"encode", my.path.string(),
                                 "--size", fmt::format("{}x{}", height, width),
                                 "--rate", fmt::format("{}", frames_per_second > 0 ? frames_per_second : 30.0)};
  if (lossless) words.emplace_back("--lossless");
  my.process = std::make_unique<VideoProcess>(program.path(), std::move(words), VideoProcess::Talk::kSend);
}

VideoWriter::~VideoWriter() {
  if (state_->finished) return;
  state_->process.reset();
  std::error_code ignored;
  fs::remove(state_->path, ignored);
}

void VideoWriter::add(std::span<const uint8_t> frame) {
  State& my = *state_;
  if (!my.process->send_all("F", 1) || !my.process->send_all(frame.data(), my.frame_bytes)) my.fail();
}

void VideoWriter::finish() {
  State& my = *state_;
  if (!my.process->send_all("E", 1) || my.process->wait_for_end() != 0) my.fail();
  std::error_code error;
  fs::rename(my.path, my.final_path, error);
  if (error)
    throw IoError(fmt::format("cannot rename {}", printable(my.path.string())), error.value(), "look at the disk");
  my.finished = true;
}

int64_t overlay_video(const VideoProgram& program, const fs::path& from, const fs::path& to,
                      const std::function<std::string(int64_t)>& text) {
  const VideoFacts facts = program.probe(from);
  VideoWriter writer(program, to, facts.height, facts.width, facts.frames_per_second, false);
  int64_t number = 0;
  std::vector<uint8_t> drawn;
  const DecodedVideo done = program.decode(from, 0, 0, [&](std::span<const uint8_t> frame) {
    drawn.assign(frame.begin(), frame.end());
    draw_label(drawn, facts.height, facts.width, text(number++));
    writer.add(drawn);
    return true;
  });
  if (done.frames == 0) refuse_unreadable(from, done.trouble);
  writer.finish();
  return number;
}

}  // namespace tandem
