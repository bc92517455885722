#include "video/frame_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/printable.h"
#include "base/sha256.h"
#include "video/damaged_frames.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tandem {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int64_t kPage = 4096;
constexpr char kFrameMagic[] = "tandem-frames";
constexpr int kFrameVersion = 1;
constexpr int64_t kMostFrameBytes = int64_t{1} << 28;
constexpr size_t kMostNote = 300;

int64_t whole_pages(int64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }
int64_t blocks_of(int64_t frames, int64_t block_frames) { return (frames + block_frames - 1) / block_frames; }
int64_t frames_of_block(int64_t frame_bytes) { return std::max<int64_t>(1, FrameFile::kBlockBytes / frame_bytes); }

[[noreturn]] void refuse_frames(const fs::path& file, std::string why) {
  throw DamagedFrames(fmt::format("the frames in {} can't be used", printable(file.string())), std::move(why),
                      "`tandem data prepare video DIR` makes them again, where the video is");
}

std::string header_text(const json& header) {
  const std::string body = header.dump(-1, ' ', true, json::error_handler_t::replace);
  std::string text =
      fmt::format("{} {} {:016x} {}\n", kFrameMagic, kFrameVersion, XXH3_64bits(body.data(), body.size()), body);
  if (text.size() > static_cast<size_t>(kPage)) text.clear();
  return text;
}

json json_of(const VideoSource& source) {
  json object{{"name", source.name},
              {"path", source.path},
              {"bytes", source.bytes},
              {"time_ns", source.time_ns},
              {"sha256", source.sha256},
              {"frames_sha256", source.frames_sha256},
              {"scaling", source.scaling},
              {"height", source.height},
              {"width", source.width},
              {"frames_per_second", source.frames_per_second},
              {"variable_rate", source.variable_rate},
              {"generated", source.generated},
              {"note", source.note.substr(0, kMostNote)}};
  if (source.rotation != 0) object["rotation"] = source.rotation;
  return object;
}

VideoSource source_of(const json& from) {
  VideoSource source;
  from.at("name").get_to(source.name);
  source.path = from.value("path", "");
  from.at("bytes").get_to(source.bytes);
  from.at("time_ns").get_to(source.time_ns);
  from.at("sha256").get_to(source.sha256);
  from.at("frames_sha256").get_to(source.frames_sha256);
  from.at("scaling").get_to(source.scaling);
  from.at("height").get_to(source.height);
  from.at("width").get_to(source.width);
  from.at("frames_per_second").get_to(source.frames_per_second);
  from.at("variable_rate").get_to(source.variable_rate);
  source.rotation = from.value("rotation", 0);
  from.at("generated").get_to(source.generated);
  from.at("note").get_to(source.note);
  return source;
}

// The JSON of a header whose sum is right.
json read_header(const fs::path& file, std::string_view page) {
  const std::string begin = fmt::format("{} ", kFrameMagic);
  if (!page.starts_with(begin)) refuse_frames(file, "it is no file of frames");
  const size_t end = page.find('\n');
  page.remove_prefix(begin.size());
  const std::string known = fmt::format("{} ", kFrameVersion);
  if (!page.starts_with(known))
    refuse_frames(file, fmt::format("its form is version {}, and this program knows {}",
                                    printable(page.substr(0, std::min<size_t>(page.find(' '), 8))), kFrameVersion));
  if (end == std::string_view::npos || end < begin.size() + known.size() + 17)
    refuse_frames(file, "its header is damaged");
  page = page.substr(known.size(), end - begin.size() - known.size());
  const std::string_view sum = page.substr(0, 16), body = page.substr(17);
  if (sum != fmt::format("{:016x}", XXH3_64bits(body.data(), body.size())))
    refuse_frames(file, "its header is damaged");
  json header = json::parse(body, nullptr, false);
  if (!header.is_object()) refuse_frames(file, "its header is damaged");
  return header;
}

struct OpenedFrames {
  int fd = -1;
  ~OpenedFrames() {
    if (fd >= 0) close(fd);
  }
};

}  // namespace

FrameFile FrameFile::open(const fs::path& file) {
  OpenedFrames opened{::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW)};
  struct stat info {};
  if (opened.fd < 0 && errno == ELOOP) refuse_frames(file, "it is a link, which is not followed");
  if (opened.fd < 0) throw IoError(fmt::format("cannot open {}", printable(file.string())), errno, "check the path");
  if (fstat(opened.fd, &info) != 0 || !S_ISREG(info.st_mode)) refuse_frames(file, "it is no regular file");
  if (info.st_size < kPage) refuse_frames(file, "it is cut: there is no whole header");
  void* const mapped = mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_SHARED, opened.fd, 0);
  if (mapped == MAP_FAILED)
    throw IoError(fmt::format("cannot map {} into memory", printable(file.string())), errno, "free memory");
  FrameFile frames;
  frames.path_ = file;
  frames.mapped_ = mapped;
  frames.mapped_bytes_ = static_cast<size_t>(info.st_size);
  const json header = read_header(file, {static_cast<const char*>(mapped), static_cast<size_t>(kPage)});
  try {
    frames.source_ = source_of(header.at("video"));
    header.at("frames").get_to(frames.frames_);
    header.at("height").get_to(frames.height_);
    header.at("width").get_to(frames.width_);
    header.at("block_frames").get_to(frames.block_frames_);
  } catch (const json::exception&) {
    refuse_frames(file, "its header lacks something");
  }
  const bool sound = frames.frames_ > 0 && frames.height_ > 0 && frames.width_ > 0 && frames.block_frames_ > 0 &&
                     frames.frame_bytes() <= kMostFrameBytes && frames.frames_ <= info.st_size / frames.frame_bytes();
  const int64_t data = sound ? whole_pages(frames.frames_ * frames.frame_bytes()) : 0;
  const int64_t blocks = sound ? blocks_of(frames.frames_, frames.block_frames_) : 0;
  const int64_t wanted = kPage + data + blocks * static_cast<int64_t>(sizeof(uint64_t));
  if (!sound || wanted != info.st_size)
    refuse_frames(file, fmt::format("it is cut: {} bytes, and its header speaks of {} frames of {} x {}", info.st_size,
                                    frames.frames_, frames.height_, frames.width_));
  const char* const bytes = static_cast<const char*>(mapped);
  frames.pixels_ = reinterpret_cast<const uint8_t*>(bytes + kPage);
  frames.sums_ = {reinterpret_cast<const uint64_t*>(bytes + kPage + data), static_cast<size_t>(blocks)};
  return frames;
}

FrameFile::FrameFile(FrameFile&& other) noexcept { *this = std::move(other); }

FrameFile& FrameFile::operator=(FrameFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(source_, other.source_);
  std::swap(frames_, other.frames_);
  std::swap(block_frames_, other.block_frames_);
  std::swap(height_, other.height_);
  std::swap(width_, other.width_);
  std::swap(pixels_, other.pixels_);
  std::swap(mapped_, other.mapped_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  std::swap(sums_, other.sums_);
  return *this;
}

FrameFile::~FrameFile() {
  if (mapped_) munmap(mapped_, mapped_bytes_);
}

void FrameFile::verify() const {
  for (size_t block = 0; block < sums_.size(); ++block) {
    const int64_t first = static_cast<int64_t>(block) * block_frames_;
    const int64_t count = std::min(block_frames_, frames_ - first);
    if (XXH3_64bits(frame(first), static_cast<size_t>(count * frame_bytes())) != sums_[block])
      refuse_frames(path_, fmt::format("frames {} to {} are damaged", first, first + count - 1));
  }
}

struct FrameFileWriter::State {
  fs::path final_path, path;  // where it goes, and where it is written
  FileSystem* files = nullptr;
  OpenFile out;
  int32_t height = 0, width = 0;
  int64_t frame_bytes = 0, block_frames = 1, frames = 0;
  std::vector<uint8_t> block;  // of frames that are not written yet
  std::vector<uint64_t> sums;
  Sha256 content;
  bool finished = false;

  void write_block() {
    if (block.empty()) return;
    sums.push_back(XXH3_64bits(block.data(), block.size()));
    out.write_all(std::as_bytes(std::span(block)));
    block.clear();
  }
};

FrameFileWriter::FrameFileWriter(const fs::path& file, int32_t height, int32_t width, FileSystem& files)
    : state_(std::make_unique<State>()) {
  State& my = *state_;
  my.files = &files;
  my.final_path = file;
  my.path = file.parent_path() / fmt::format(".tmp-{}-{}", getpid(), file.filename().string());
  my.height = height;
  my.width = width;
  my.frame_bytes = int64_t{height} * width;
  my.block_frames = frames_of_block(my.frame_bytes);
  files.mkdir(file.parent_path());
  if (files.exists(my.path)) files.remove_all(my.path);
  my.out = OpenFile(files, files.open_new(my.path));
  const std::vector<std::byte> empty(static_cast<size_t>(kPage));
  my.out.write_all(empty);
}

FrameFileWriter::~FrameFileWriter() {
  if (!state_->finished) {
    std::error_code ignored;
    fs::remove(state_->path, ignored);
  }
}

void FrameFileWriter::add(std::span<const uint8_t> frames) {
  State& my = *state_;
  my.content.update(std::as_bytes(frames));
  my.frames += static_cast<int64_t>(frames.size()) / my.frame_bytes;
  const size_t block_bytes = static_cast<size_t>(my.block_frames * my.frame_bytes);
  while (!frames.empty()) {
    const size_t part = std::min(frames.size(), block_bytes - my.block.size());
    my.block.insert(my.block.end(), frames.begin(), frames.begin() + static_cast<ptrdiff_t>(part));
    frames = frames.subspan(part);
    if (my.block.size() == block_bytes) my.write_block();
  }
}

int64_t FrameFileWriter::frames() const { return state_->frames; }

void FrameFileWriter::finish(VideoSource source) {
  State& my = *state_;
  my.write_block();
  source.frames_sha256 = my.content.hex();
  const int64_t data = my.frames * my.frame_bytes;
  const std::vector<std::byte> padding(static_cast<size_t>(whole_pages(data) - data));
  my.out.write_all(padding);
  my.out.write_all(std::as_bytes(std::span(my.sums)));
  std::string header = header_text({{"video", json_of(source)},
                                    {"frames", my.frames},
                                    {"height", my.height},
                                    {"width", my.width},
                                    {"block_frames", my.block_frames}});
  if (header.empty())
    throw ConfigError(fmt::format("the name {} is too long", printable(source.name.substr(0, 80))),
                      "it stands in the header of its frames", "give the video a shorter name");
  if (pwrite(my.out.handle().fd, header.data(), header.size(), 0) != static_cast<ssize_t>(header.size()))
    throw IoError(fmt::format("cannot write {}", my.path.string()), errno, "free some space on that disk");
  my.files->fsync(my.out.handle());
  my.out.close();
  my.files->rename(my.path, my.final_path);
  my.finished = true;
  my.files->fsync_dir(my.final_path.parent_path());
}

}  // namespace tandem
