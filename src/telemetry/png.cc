#include "telemetry/png.h"

#include <algorithm>
#include <string_view>

namespace tandem {
namespace {

void append_big_endian(std::string& out, uint32_t word) {
  for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<char>(word >> shift));
}

uint32_t crc32(std::string_view bytes) {
  uint32_t crc = 0xFFFFFFFFu;
  for (const char c : bytes) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
  }
  return ~crc;
}

uint32_t adler32(std::string_view bytes) {
  uint32_t a = 1, b = 0;
  for (const char c : bytes) {
    a = (a + static_cast<uint8_t>(c)) % 65521;
    b = (b + a) % 65521;
  }
  return b << 16 | a;
}

void append_chunk(std::string& out, std::string_view type, std::string_view data) {
  append_big_endian(out, static_cast<uint32_t>(data.size()));
  const size_t begin = out.size();
  out += type;
  out += data;
  append_big_endian(out, crc32(std::string_view(out).substr(begin)));
}

// Bits fill bytes from the lowest; a Huffman code comes highest bit first.
class BitWriter {
 public:
  void bits(uint32_t value, int count) {
    for (int i = 0; i < count; ++i) put(value >> i & 1);
  }
  void code(uint32_t value, int count) {
    for (int i = count - 1; i >= 0; --i) put(value >> i & 1);
  }
  std::string take() {
    if (filled_ > 0) out_.push_back(static_cast<char>(byte_));
    return std::move(out_);
  }

 private:
  void put(uint32_t bit) {
    byte_ |= bit << filled_;
    if (++filled_ < 8) return;
    out_.push_back(static_cast<char>(byte_));
    byte_ = 0, filled_ = 0;
  }
  std::string out_;
  uint32_t byte_ = 0;
  int filled_ = 0;
};

// The fixed code of a literal or of a length's symbol (RFC 1951, 3.2.6).
void put_symbol(BitWriter& out, uint32_t symbol) {
  if (symbol < 144)
    out.code(0x30 + symbol, 8);
  else if (symbol < 256)
    out.code(0x190 + symbol - 144, 9);
  else if (symbol < 280)
    out.code(symbol - 256, 7);
  else
    out.code(0xC0 + symbol - 280, 8);
}

// `length` bytes more of the one before: 3 to 258.
void put_run(BitWriter& out, uint32_t length) {
  constexpr std::array<uint32_t, 29> kBase{3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                           31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
  const auto above = std::upper_bound(kBase.begin(), kBase.end(), length);
  const auto index = static_cast<uint32_t>(above - kBase.begin() - 1);
  const int extra = index < 8 || index == 28 ? 0 : static_cast<int>(index) / 4 - 1;
  put_symbol(out, 257 + index);
  out.bits(length - kBase[index], extra);
  out.code(0, 5);  // a distance of 1
}

std::string deflated(std::string_view bytes) {
  BitWriter out;
  out.bits(1, 1);  // the last block
  out.bits(1, 2);  // with fixed codes
  for (size_t at = 0; at < bytes.size();) {
    size_t run = 0;
    while (at > 0 && run < 258 && at + run < bytes.size() && bytes[at + run] == bytes[at - 1]) ++run;
    if (run >= 3)
      put_run(out, static_cast<uint32_t>(run));
    else
      put_symbol(out, static_cast<uint8_t>(bytes[at])), run = 1;
    at += run;
  }
  put_symbol(out, 256);
  std::string stream = "\x78\x01" + out.take();
  append_big_endian(stream, adler32(bytes));
  return stream;
}

}  // namespace

std::string make_png(int width, int height, std::span<const uint8_t> pixels, std::span<const PngColor> palette) {
  std::string rows;
  const auto w = static_cast<size_t>(width);
  for (size_t y = 0; y < static_cast<size_t>(height); ++y) {
    rows.push_back(2);  // less what stands above
    for (size_t x = 0; x < w; ++x)
      rows.push_back(static_cast<char>(pixels[y * w + x] - (y > 0 ? pixels[(y - 1) * w + x] : 0)));
  }
  std::string header, colors, png = "\x89PNG\r\n\x1a\n";
  append_big_endian(header, static_cast<uint32_t>(width));
  append_big_endian(header, static_cast<uint32_t>(height));
  header.append({8, 3, 0, 0, 0});  // bits of a pixel, palette, deflate, filters, not interlaced
  for (const PngColor& color : palette) colors.append(color.begin(), color.end());
  append_chunk(png, "IHDR", header);
  append_chunk(png, "PLTE", colors);
  append_chunk(png, "IDAT", deflated(rows));
  append_chunk(png, "IEND", "");
  return png;
}

}  // namespace tandem
