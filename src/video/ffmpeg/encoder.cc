#include "video/ffmpeg/encoder.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "base/errors.h"
#include "base/printable.h"
#include "video/ffmpeg/av_common.h"

namespace tandem {
namespace {

[[noreturn]] void refuse_encoding(const std::string& file, int error) {
  std::string why = take_av_complaint();
  if (why.empty()) why = av_words(error);
  throw Error(ExitCode::kFailed, fmt::format("{} can't be written as a video", printable(file)), why,
              "look at the disk and the name; this FFmpeg may lack an encoder");
}

const AVCodec* encoder_for(bool lossless) {
  if (const AVCodec* const x264 = avcodec_find_encoder_by_name("libx264")) return x264;
  return avcodec_find_encoder(lossless ? AV_CODEC_ID_FFV1 : AV_CODEC_ID_MPEG4);
}

}  // namespace

struct FfmpegEncoder::State {
  std::string file;
  EncoderOptions options;
  int32_t height = 0, width = 0;  // of the video: even, for players
  AvPointer<AVFormatContext> format;
  AvPointer<AVCodecContext> codec;
  AvPointer<SwsContext> to_planes;
  AvPointer<AVFrame> frame;
  AvPointer<AVPacket> packet;
  AVStream* stream = nullptr;
  int64_t frames = 0;

  int check(int result) const {
    if (result < 0) refuse_encoding(file, result);
    return result;
  }
  void open_codec();
  void open_file();
  void make_frame();
  void drain();
};

void FfmpegEncoder::State::open_codec() {
  const AVCodec* const encoder = encoder_for(options.lossless);
  if (!encoder) check(AVERROR_ENCODER_NOT_FOUND);
  codec.reset(avcodec_alloc_context3(encoder));
  codec->width = width;
  codec->height = height;
  codec->time_base = av_inv_q(av_d2q(options.frames_per_second, 100'000));
  codec->framerate = av_inv_q(codec->time_base);
  codec->thread_count = 1;
  codec->pix_fmt = options.lossless ? AV_PIX_FMT_GRAY8 : AV_PIX_FMT_YUV420P;
  codec->color_range = options.lossless ? AVCOL_RANGE_JPEG : AVCOL_RANGE_MPEG;
  if (format->oformat->flags & AVFMT_GLOBALHEADER) codec->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
  if (std::string_view(encoder->name) == "libx264") {
    av_opt_set(codec->priv_data, "preset", "veryfast", 0);
    av_opt_set(codec->priv_data, options.lossless ? "qp" : "crf", options.lossless ? "0" : "20", 0);
  } else if (!options.lossless) {
    codec->flags |= AV_CODEC_FLAG_QSCALE;
    codec->global_quality = FF_QP2LAMBDA * 3;
  }
  check(avcodec_open2(codec.get(), encoder, nullptr));
}

void FfmpegEncoder::State::open_file() {
  stream = avformat_new_stream(format.get(), nullptr);
  if (!stream) check(AVERROR(ENOMEM));
  check(avcodec_parameters_from_context(stream->codecpar, codec.get()));
  stream->time_base = codec->time_base;
  stream->avg_frame_rate = codec->framerate;
  check(avio_open(&format->pb, ("file:" + file).c_str(), AVIO_FLAG_WRITE));
  AVDictionary* muxing = nullptr;
  av_dict_set(&muxing, "movflags", "+faststart", 0);
  const int written = avformat_write_header(format.get(), &muxing);
  av_dict_free(&muxing);
  check(written);
}

void FfmpegEncoder::State::make_frame() {
  frame.reset(av_frame_alloc());
  packet.reset(av_packet_alloc());
  frame->width = width;
  frame->height = height;
  frame->format = codec->pix_fmt;
  frame->color_range = codec->color_range;
  check(av_frame_get_buffer(frame.get(), 0));
  if (options.lossless) return;
  to_planes.reset(sws_getContext(width, height, AV_PIX_FMT_GRAY8, width, height, AV_PIX_FMT_YUV420P,
                                 SWS_BICUBIC | SWS_ACCURATE_RND | SWS_BITEXACT, nullptr, nullptr, nullptr));
  if (!to_planes) check(AVERROR(ENOMEM));
}

void FfmpegEncoder::State::drain() {
  while (true) {
    const int got = avcodec_receive_packet(codec.get(), packet.get());
    if (got == AVERROR(EAGAIN) || got == AVERROR_EOF) return;
    check(got);
    packet->stream_index = stream->index;
    if (packet->duration == 0) packet->duration = 1;
    av_packet_rescale_ts(packet.get(), codec->time_base, stream->time_base);
    check(av_interleaved_write_frame(format.get(), packet.get()));
  }
}

FfmpegEncoder::FfmpegEncoder(const std::string& file, const EncoderOptions& options)
    : state_(std::make_unique<State>()) {
  keep_av_complaints();
  State& my = *state_;
  my.file = file;
  my.options = options;
  my.height = options.lossless ? options.height : options.height / 2 * 2;
  my.width = options.lossless ? options.width : options.width / 2 * 2;
  if (my.height <= 0 || my.width <= 0 || !(options.frames_per_second > 0)) my.check(AVERROR(EINVAL));
  AVFormatContext* made = nullptr;
  my.check(avformat_alloc_output_context2(&made, nullptr, "mp4", ("file:" + file).c_str()));
  my.format.reset(made);
  my.open_codec();
  my.open_file();
  my.make_frame();
}

FfmpegEncoder::~FfmpegEncoder() {
  if (state_->format && state_->format->pb) avio_closep(&state_->format->pb);
}

void FfmpegEncoder::add(std::span<const uint8_t> frame) {
  State& my = *state_;
  my.check(av_frame_make_writable(my.frame.get()));
  const int line = my.options.width;
  if (my.options.lossless) {
    for (int32_t y = 0; y < my.height; ++y)
      std::memcpy(my.frame->data[0] + y * my.frame->linesize[0],
                  frame.data() + static_cast<size_t>(y) * static_cast<size_t>(line), static_cast<size_t>(line));
  } else {
    const uint8_t* const from[4] = {frame.data(), nullptr, nullptr, nullptr};
    const int steps[4] = {line, 0, 0, 0};
    my.check(sws_scale(my.to_planes.get(), from, steps, 0, my.height, my.frame->data, my.frame->linesize));
  }
  my.frame->pts = my.frames++;
  my.check(avcodec_send_frame(my.codec.get(), my.frame.get()));
  my.drain();
}

void FfmpegEncoder::finish() {
  State& my = *state_;
  my.check(avcodec_send_frame(my.codec.get(), nullptr));
  my.drain();
  my.check(av_write_trailer(my.format.get()));
  my.check(avio_closep(&my.format->pb));
}

}  // namespace tandem
