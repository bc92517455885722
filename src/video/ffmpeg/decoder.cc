#include "video/ffmpeg/decoder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/errors.h"
#include "base/printable.h"
#include "video/ffmpeg/av_common.h"
#include "video/ffmpeg/gray_scaler.h"
#include "video/ffmpeg/lost_frames.h"

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

// What a player is asked to turn the pictures by, in whole degrees clockwise, 0 to 359.
int32_t rotation_of(const AVStream& stream) {
#if LIBAVFORMAT_VERSION_INT >= AV_VERSION_INT(60, 15, 100)
  const AVPacketSideData* const found = av_packet_side_data_get(
      stream.codecpar->coded_side_data, stream.codecpar->nb_coded_side_data, AV_PKT_DATA_DISPLAYMATRIX);
  const uint8_t* const matrix = found && found->size >= 9 * sizeof(int32_t) ? found->data : nullptr;
#else
  size_t size = 0;
  const uint8_t* matrix = av_stream_get_side_data(&stream, AV_PKT_DATA_DISPLAYMATRIX, &size);
  if (size < 9 * sizeof(int32_t)) matrix = nullptr;
#endif
  if (!matrix) return 0;
  int32_t values[9];
  std::memcpy(values, matrix, sizeof values);
  const double degrees = -av_display_rotation_get(values);
  return std::isfinite(degrees) ? static_cast<int32_t>((std::lround(degrees) % 360 + 360) % 360) : 0;
}

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

  using TakeGray = std::function<bool(std::span<const uint8_t>)>;
  int64_t packets = 0, damaged = 0, frames = 0, lost = 0;
  double end_seconds = 0, any_end_seconds = 0;  // of the last packet: of the pictures, of any stream
  int64_t end_number = 0;                       // the same of the pictures, in units of their stream
  std::string reading_trouble, damage_words;    // the first reason
  LostFrames places;
  bool stopped = false;
  void note_packet(const AVPacket& packet);
  void note_damage(std::string words);
  bool take_frame(GrayScaler& scaler, const AVFrame& frame, const TakeGray& take);
  bool take_frames(GrayScaler& scaler, AVFrame* frame, const TakeGray& take);
  void send(AVPacket* packet, GrayScaler& scaler, AVFrame* frame, const TakeGray& take);
  int64_t expected_packets() const;
  std::string early_end() const;
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
    refuse_video(file.name, with_complaint(av_words(found)));
}

void FfmpegDecoder::State::open_codec() {
  const AVCodec* decoder = nullptr;
  const int index = av_find_best_stream(format.get(), AVMEDIA_TYPE_VIDEO, -1, -1, &decoder, 0);
  if (index < 0 || !decoder) refuse_video(file.name, "it has no stream of pictures that FFmpeg can decode");
  stream = format->streams[index];
  if (stream->disposition & AV_DISPOSITION_ATTACHED_PIC) refuse_video(file.name, "its only picture is a cover");
  // Where the container does not count frames, the end of the sound tells whether the file was cut.
  for (unsigned i = 0; i < format->nb_streams; ++i)
    if (static_cast<int>(i) != index && expected_packets() > 0) format->streams[i]->discard = AVDISCARD_ALL;
  codec.reset(avcodec_alloc_context3(decoder));
  if (avcodec_parameters_to_context(codec.get(), stream->codecpar) < 0) refuse_video(file.name, "broken parameters");
  codec->pkt_timebase = stream->time_base;
  codec->thread_count = 1;  // several videos are decoded at the same time instead
  codec->max_pixels = kMostPixels;
  if (const int opened = avcodec_open2(codec.get(), decoder, nullptr); opened < 0)
    refuse_video(file.name, with_complaint(av_words(opened)));
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
  facts.rotation = rotation_of(*stream);
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

void FfmpegDecoder::State::note_packet(const AVPacket& packet) {
  const AVStream& of = *format->streams[packet.stream_index];
  if (packet.pts != AV_NOPTS_VALUE) {
    const double end = static_cast<double>(packet.pts + packet.duration) * av_q2d(of.time_base);
    any_end_seconds = std::max(any_end_seconds, end);
    if (&of == stream) end_seconds = std::max(end_seconds, end);
  }
  if (&of != stream) return;
  ++packets;
  if (packet.dts != AV_NOPTS_VALUE)
    end_number = std::max(end_number, packet.dts + std::max<int64_t>(packet.duration, 1));
  if (packet.flags & AV_PKT_FLAG_CORRUPT) note_damage("a packet is cut");
  if (packet.flags & AV_PKT_FLAG_DISCARD) return;  // an edit list leaves its frame out
  places.sent(packet.pts != AV_NOPTS_VALUE ? packet.pts : codec->has_b_frames ? LostFrames::kNoTime : packet.dts);
}

void FfmpegDecoder::State::note_damage(std::string words) {
  ++damaged;
  places.damage();
  words = with_complaint(std::move(words));
  if (damage_words.empty()) damage_words = std::move(words);
}

// In the place of a lost frame stands the one before it; of the first ones, the one behind them.
bool FfmpegDecoder::State::take_frame(GrayScaler& scaler, const AVFrame& frame, const TakeGray& take) {
  const int64_t time = frame.pts != AV_NOPTS_VALUE ? frame.pts
                       : codec->has_b_frames       ? LostFrames::kNoTime
                                                   : frame.pkt_dts;
  const int64_t missing = places.before(time);
  const bool none_yet = frames == 0;
  lost += missing;
  for (int64_t i = 0; i < missing && !none_yet; ++i, ++frames)
    if (!take(scaler.last())) return false;
  const std::span<const uint8_t> gray = scaler.gray(frame);
  for (int64_t i = 0; i < (none_yet ? missing : 0) + 1; ++i, ++frames)
    if (!take(gray)) return false;
  return true;
}

bool FfmpegDecoder::State::take_frames(GrayScaler& scaler, AVFrame* frame, const TakeGray& take) {
  while (true) {
    const int got = avcodec_receive_frame(codec.get(), frame);
    if (got == AVERROR(EAGAIN) || got == AVERROR_EOF) return true;
    if (got < 0) {
      note_damage(av_words(got));
      return true;
    }
    if (frame->decode_error_flags || (frame->flags & AV_FRAME_FLAG_CORRUPT)) note_damage("a frame has errors");
    const bool go_on = take_frame(scaler, *frame, take);
    av_frame_unref(frame);
    if (!go_on) return false;
  }
}

void FfmpegDecoder::State::send(AVPacket* packet, GrayScaler& scaler, AVFrame* frame, const TakeGray& take) {
  // A decoder that is full takes the packet after its frames were taken.
  for (int sent = AVERROR(EAGAIN); sent == AVERROR(EAGAIN) && !stopped;) {
    sent = avcodec_send_packet(codec.get(), packet);
    if (sent < 0 && sent != AVERROR(EAGAIN) && sent != AVERROR_EOF) note_damage(av_words(sent));
    stopped = !take_frames(scaler, frame, take);
  }
}

// 0: the container does not say. The index of an mp4 knows what an edit list leaves; the others' counts are those of
// their headers, and an AVI counts by frames of time, some of which are empty.
int64_t FfmpegDecoder::State::expected_packets() const {
  const std::string_view container = format->iformat->name;
  const int entries = avformat_index_get_entries_count(stream);
  if (container.starts_with("mov") && entries > 0) return entries;
  if (container == "avi" && end_number >= stream->nb_frames) return std::min(packets, stream->nb_frames);
  return std::max<int64_t>(stream->nb_frames, 0);
}

// Matroska's own length of a track, written when the file was finished; else that of the file, which any stream may
// fill.
std::string FfmpegDecoder::State::early_end() const {
  const auto seconds = [](double came, double said) {
    return fmt::format("it ends early: after {:.2f} of {:.2f} seconds", came, said);
  };
  if (const AVDictionaryEntry* const tag = av_dict_get(stream->metadata, "DURATION", nullptr, 0)) {
    int64_t said = 0;
    const double slack = 1.5 / std::max(facts.frames_per_second, 3.0);
    if (av_parse_time(&said, tag->value, 1) < 0) return "";
    const double length = static_cast<double>(said) / AV_TIME_BASE;
    return end_seconds < length - slack ? seconds(end_seconds, length) : "";
  }
  if (format->duration_estimation_method != AVFMT_DURATION_FROM_STREAM || format->duration <= 0) return "";
  const double said = static_cast<double>(format->duration) / AV_TIME_BASE;
  return any_end_seconds < said - 0.5 ? seconds(any_end_seconds, said) : "";
}

std::string FfmpegDecoder::State::trouble() const {
  std::string text;
  const auto say = [&](const std::string& part) { text += (text.empty() || part.empty() ? "" : ", ") + part; };
  if (damaged > 0)
    say(fmt::format("{} damaged frame{} or packet{}: {}", damaged, damaged == 1 ? "" : "s", damaged == 1 ? "" : "s",
                    damage_words));
  if (lost > 0)
    say(fmt::format("{} lost frame{}, each with its neighbour's picture in its place", lost, lost == 1 ? "" : "s"));
  if (const int64_t last = places.at_end(); last > 0) say(fmt::format("the last {} lost", last));
  if (places.unknown()) say("what is lost has no known place: frames behind it may stand too early");
  const int64_t expected = expected_packets();
  if (packets < expected)
    say(fmt::format("it ends early: {} of {} frames", packets, expected));
  else if (!reading_trouble.empty())
    say(fmt::format("it ends early: {}", reading_trouble));
  else if (expected == 0)
    say(early_end());
  if (frames == 0 && text.empty()) say("no frame came");
  return text;
}

DecodedVideo FfmpegDecoder::decode(int32_t height, int32_t width,
                                   const std::function<bool(std::span<const uint8_t>)>& take) {
  State& my = *state_;
  GrayScaler scaler(height > 0 ? height : my.facts.height, width > 0 ? width : my.facts.width);
  const AvPointer<AVPacket> packet(av_packet_alloc());
  const AvPointer<AVFrame> frame(av_frame_alloc());
  take_av_complaint();  // of looking at the file
  while (!my.stopped) {
    const int got = av_read_frame(my.format.get(), packet.get());
    if (got == AVERROR(EAGAIN)) continue;
    if (got < 0) {
      if (got != AVERROR_EOF) my.reading_trouble = with_complaint(av_words(got));
      break;
    }
    if (packet->size > 0) {  // an empty one would end the decoder
      my.note_packet(*packet);
      if (packet->stream_index == my.stream->index) my.send(packet.get(), scaler, frame.get(), take);
    }
    av_packet_unref(packet.get());
  }
  if (!my.stopped) my.send(nullptr, scaler, frame.get(), take);  // what the decoder still holds
  return {my.facts, my.frames, my.stopped ? "" : my.trouble()};
}

}  // namespace tandem
