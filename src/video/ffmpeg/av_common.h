// video/ffmpeg/av_common.h -- FFmpeg's objects as values, and its words as errors.
#pragma once

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/display.h>
#include <libavutil/imgutils.h>
#include <libavutil/opt.h>
#include <libavutil/parseutils.h>
#include <libswscale/swscale.h>
}

#include <memory>
#include <string>

namespace tandem {

struct AvFree {
  void operator()(AVFormatContext* context) const { avformat_free_context(context); }
  void operator()(AVCodecContext* context) const { avcodec_free_context(&context); }
  void operator()(AVPacket* packet) const { av_packet_free(&packet); }
  void operator()(AVFrame* frame) const { av_frame_free(&frame); }
  void operator()(SwsContext* context) const { sws_freeContext(context); }
  void operator()(AVIOContext* context) const {
    av_freep(&context->buffer);
    avio_context_free(&context);
  }
};
template <class T>
using AvPointer = std::unique_ptr<T, AvFree>;

// "Invalid data found when processing input".
std::string av_words(int error);
// The last thing that FFmpeg complained of since the last call; empty: nothing. It goes nowhere else.
std::string take_av_complaint();
void keep_av_complaints();  // from now on; what it says is not printed

}  // namespace tandem
