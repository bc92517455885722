#include "video/ffmpeg/decoder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <vector>

#include "base/errors.h"
#include "base/printable.h"
#include "video/ffmpeg/av_common.h"
#include "video/ffmpeg/gray_scaler.h"

namespace tandem {
namespace {

// Containers of one file each. Playlists and lists of files are not among them: they name others to be opened.
constexpr char kContainers[] =
    "mov,matroska,avi,mpeg,mpegts,mpegvideo,m4v,h264,hevc,flv,asf,ogg,yuv4mpegpipe,ivf,nut,dv,mxf,gif,obu,wtv,rm";
constexpr int kReadBytes = 1 << 16;
constexpr int64_t kMostPixels = int64_t{8192} * 8192;

struct OpenedFile {
  std::string name;
  int fd = -1;
  int64_t bytes = 0;
  ~OpenedFile() {
    if (fd >= 0) close(fd);
  }
};

int read_some(void* opaque, uint8_t* buffer, int size) {
  const ssize_t got = read(static_cast<OpenedFile*>(opaque)->fd, buffer, static_cast<size_t>(size));
  if (got < 0) return AVERROR(errno);
  return got == 0 ? AVERROR_EOF : static_cast<int>(got);
}

// Beyond the end is an error, by which a container learns that it was cut.
int64_t seek_to(void* opaque, int64_t offset, int whence) {
  auto& file = *static_cast<OpenedFile*>(opaque);
  if (whence & AVSEEK_SIZE) return file.bytes;
  whence &= ~AVSEEK_FORCE;
  const int64_t base = whence == SEEK_SET ? 0 : whence == SEEK_END ? file.bytes : lseek(file.fd, 0, SEEK_CUR);
  if (base + offset < 0 || base + offset > file.bytes) return AVERROR(EINVAL);
  return lseek(file.fd, base + offset, SEEK_SET);
}

[[noreturn]] void refuse_video(const std::string& file, std::string why) {
  throw ConfigError(fmt::format("{} can't be read as a video", printable(file)), std::move(why),
                    "look whether it plays; copy or encode it again, or take it out of the folder");
}

std::string with_complaint(std::string words) {
  const std::string complaint = take_av_complaint();
  return complaint.empty() ? words : fmt::format("{} ({})", words, complaint);
}

double value_of(AVRational rate) { return rate.num > 0 && rate.den > 0 ? av_q2d(rate) : 0; }

}  // namespace

struct FfmpegDecoder::State {
  OpenedFile file;
  AvPointer<AVIOContext> io;
  AvPointer<AVFormatContext> format;
  AvPointer<AVCodecContext> codec;
  AVStream* stream = nullptr;
  VideoFacts facts;

  void open_file(const std::string& name);
  void open_container();
  void open_codec();
  void note_facts();

  int64_t packets = 0, damaged = 0, frames = 0;
  int64_t last_time = 0;  // end of the last packet, in the stream's units
  std::string reading_trouble;
  bool stopped = false;
  bool take_frames(GrayScaler& scaler, AVFrame* frame, const std::function<bool(std::span<const uint8_t>)>& take);
  void send(AVPacket* packet, GrayScaler& scaler, AVFrame* frame,
            const std::function<bool(std::span<const uint8_t>)>& take);
  std::string trouble() const;
};

void FfmpegDecoder::State::open_file(const std::string& name) {
  file.name = name;
  file.fd = open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.fd < 0) refuse_video(name, std::error_code(errno, std::generic_category()).message());
  struct stat info {};
  if (fstat(file.fd, &info) != 0 || !S_ISREG(info.st_mode)) refuse_video(name, "it is no regular file");
  if (info.st_size == 0) refuse_video(name, "the file is empty");
  file.bytes = info.st_size;
}

void FfmpegDecoder::State::open_container() {
  auto* const buffer = static_cast<unsigned char*>(av_malloc(kReadBytes));
  io.reset(avio_alloc_context(buffer, kReadBytes, 0, &file, read_some, nullptr, seek_to));
  AVFormatContext* opening = avformat_alloc_context();
  opening->pb = io.get();
  opening->flags |= AVFMT_FLAG_CUSTOM_IO;
  AVDictionary* options = nullptr;
  av_dict_set(&options, "format_whitelist", kContainers, 0);
  av_dict_set(&options, "protocol_whitelist", "none", 0);
  const int opened = avformat_open_input(&opening, nullptr, nullptr, &options);
  av_dict_free(&options);
  if (opened < 0) refuse_video(file.name, with_complaint(av_words(opened)));
  format.reset(opening);
  if (const int found = avformat_find_stream_info(format.get(), nullptr); found < 0)
    refuse_video(file.name, av_words(found));
}

void FfmpegDecoder::State::open_codec() {
  const AVCodec* decoder = nullptr;
  const int index = av_find_best_stream(format.get(), AVMEDIA_TYPE_VIDEO, -1, -1, &decoder, 0);
  if (index < 0 || !decoder) refuse_video(file.name, "it has no stream of pictures that FFmpeg can decode");
  stream = format->streams[index];
  if (stream->disposition & AV_DISPOSITION_ATTACHED_PIC) refuse_video(file.name, "its only picture is a cover");
  for (unsigned i = 0; i < format->nb_streams; ++i)
    if (static_cast<int>(i) != index) format->streams[i]->discard = AVDISCARD_ALL;
  codec.reset(avcodec_alloc_context3(decoder));
  if (avcodec_parameters_to_context(codec.get(), stream->codecpar) < 0) refuse_video(file.name, "broken parameters");
  codec->pkt_timebase = stream->time_base;
  codec->thread_count = 1;  // several videos are decoded at the same time instead
  codec->max_pixels = kMostPixels;
  if (const int opened = avcodec_open2(codec.get(), decoder, nullptr); opened < 0)
    refuse_video(file.name, av_words(opened));
}

void FfmpegDecoder::State::note_facts() {
  facts.width = codec->width;
  facts.height = codec->height;
  if (facts.width <= 0 || facts.height <= 0) refuse_video(file.name, "its pictures have no size");
  facts.codec = avcodec_get_name(codec->codec_id);
  facts.frames = std::max<int64_t>(stream->nb_frames, 0);
  const double mean = value_of(stream->avg_frame_rate), base = value_of(stream->r_frame_rate);
  facts.frames_per_second = mean > 0 ? mean : base;
  facts.variable_rate = mean > 0 && base > 0 && std::abs(mean - base) > 0.005 * base;
}

FfmpegDecoder::FfmpegDecoder(const std::string& file) : state_(std::make_unique<State>()) {
  keep_av_complaints();
  state_->open_file(file);
  state_->open_container();
  state_->open_codec();
  state_->note_facts();
}

FfmpegDecoder::~FfmpegDecoder() {
  if (state_->format) {  // closes what avformat_open_input() opened; the reader is ours
    AVFormatContext* const opened = state_->format.release();
    AVFormatContext* closing = opened;
    avformat_close_input(&closing);
  }
}

const VideoFacts& FfmpegDecoder::facts() const { return state_->facts; }

bool FfmpegDecoder::State::take_frames(GrayScaler& scaler, AVFrame* frame,
                                       const std::function<bool(std::span<const uint8_t>)>& take) {
  while (true) {
    const int got = avcodec_receive_frame(codec.get(), frame);
    if (got == AVERROR(EAGAIN) || got == AVERROR_EOF) return true;
    if (got < 0) {
      ++damaged;
      return true;
    }
    if (frame->decode_error_flags || (frame->flags & AV_FRAME_FLAG_CORRUPT)) ++damaged;
    ++frames;
    const bool go_on = take(scaler.gray(*frame));
    av_frame_unref(frame);
    if (!go_on) return false;
  }
}

void FfmpegDecoder::State::send(AVPacket* packet, GrayScaler& scaler, AVFrame* frame,
                                const std::function<bool(std::span<const uint8_t>)>& take) {
  // A decoder that is full takes the packet after its frames were taken.
  for (int sent = AVERROR(EAGAIN); sent == AVERROR(EAGAIN) && !stopped;) {
    sent = avcodec_send_packet(codec.get(), packet);
    if (sent < 0 && sent != AVERROR(EAGAIN) && sent != AVERROR_EOF) ++damaged;
    stopped = !take_frames(scaler, frame, take);
  }
}

std::string FfmpegDecoder::State::trouble() const {
  int64_t expected = facts.frames;
  const int entries = avformat_index_get_entries_count(stream);
  // The index of an mp4 knows what an edit list leaves; the others' counts are those of their headers.
  if (std::string_view(format->iformat->name).starts_with("mov") && entries > 0) expected = entries;
  std::string text;
  const auto say = [&](std::string part) { text += (text.empty() ? "" : ", ") + part; };
  if (damaged > 0)
    say(fmt::format("{} damaged frame{} or packet{}", damaged, damaged == 1 ? "" : "s", damaged == 1 ? "" : "s"));
  if (packets < expected)
    say(fmt::format("it ends early: {} of {} frames", packets, expected));
  else if (!reading_trouble.empty())
    say(fmt::format("it ends early: {}", reading_trouble));
  else if (expected == 0 && format->nb_streams == 1 &&
           format->duration_estimation_method == AVFMT_DURATION_FROM_STREAM && format->duration > 0) {
    const double said = static_cast<double>(format->duration) / AV_TIME_BASE;
    const double came = static_cast<double>(last_time) * av_q2d(stream->time_base);
    if (came < said - 0.5) say(fmt::format("it ends early: after {:.1f} of {:.1f} seconds", came, said));
  }
  if (frames == 0 && text.empty()) say("no frame came");
  return text;
}

DecodedVideo FfmpegDecoder::decode(int32_t height, int32_t width,
                                   const std::function<bool(std::span<const uint8_t>)>& take) {
  State& my = *state_;
  GrayScaler scaler(height > 0 ? height : my.facts.height, width > 0 ? width : my.facts.width);
  const AvPointer<AVPacket> packet(av_packet_alloc());
  const AvPointer<AVFrame> frame(av_frame_alloc());
  const int64_t start = my.stream->start_time == AV_NOPTS_VALUE ? 0 : my.stream->start_time;
  while (!my.stopped) {
    const int got = av_read_frame(my.format.get(), packet.get());
    if (got == AVERROR(EAGAIN)) continue;
    if (got < 0) {
      if (got != AVERROR_EOF) my.reading_trouble = av_words(got);
      break;
    }
    if (packet->stream_index == my.stream->index) {
      ++my.packets;
      if (packet->flags & AV_PKT_FLAG_CORRUPT) ++my.damaged;
      if (packet->pts != AV_NOPTS_VALUE) my.last_time = std::max(my.last_time, packet->pts - start + packet->duration);
      my.send(packet.get(), scaler, frame.get(), take);
    }
    av_packet_unref(packet.get());
  }
  if (!my.stopped) my.send(nullptr, scaler, frame.get(), take);  // what the decoder still holds
  return {my.facts, my.frames, my.stopped ? "" : my.trouble()};
}

}  // namespace tandem
