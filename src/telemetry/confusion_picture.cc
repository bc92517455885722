// telemetry/confusion_picture.cc -- the picture of telemetry/confusion_table.h: squares, digits, and a number for each
// class at the left and at the top.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "telemetry/confusion_table.h"
#include "telemetry/png.h"

namespace tandem {
namespace {

constexpr int kCell = 44, kMargin = 30, kZoom = 3;  // pixels; a dot of a digit is kZoom of them
constexpr int kShades = 64;                         // white to dark blue; then black and white for digits
constexpr uint8_t kBlack = kShades, kWhite = kShades + 1;

// 3 x 5 dots, a row after the other, the left one highest.
constexpr std::array<std::array<uint8_t, 5>, 10> kDigits{{{7, 5, 5, 5, 7},
                                                          {2, 6, 2, 2, 7},
                                                          {7, 1, 7, 4, 7},
                                                          {7, 1, 7, 1, 7},
                                                          {5, 5, 7, 1, 1},
                                                          {7, 4, 7, 1, 7},
                                                          {7, 4, 7, 5, 7},
                                                          {7, 1, 1, 1, 1},
                                                          {7, 5, 7, 5, 7},
                                                          {7, 5, 7, 1, 7}}};

class Canvas {
 public:
  explicit Canvas(int size) : size_(size), pixels_(static_cast<size_t>(size) * static_cast<size_t>(size), 0) {}
  void fill(int left, int top, int width, int height, uint8_t color) {
    for (int y = top; y < top + height; ++y) std::fill_n(pixels_.begin() + int64_t{y} * size_ + left, width, color);
  }
  // Centred there.
  void write(int x, int y, const std::string& digits, uint8_t color) {
    const int width = (static_cast<int>(digits.size()) * 4 - 1) * kZoom;
    int left = x - width / 2;
    const int top = y - 5 * kZoom / 2;
    for (const char digit : digits) {
      for (int row = 0; row < 5; ++row)
        for (int dot = 0; dot < 3; ++dot)
          if (kDigits[static_cast<size_t>(digit - '0')][static_cast<size_t>(row)] >> (2 - dot) & 1)
            fill(left + dot * kZoom, top + row * kZoom, kZoom, kZoom, color);
      left += 4 * kZoom;
    }
  }
  const std::vector<uint8_t>& pixels() const { return pixels_; }

 private:
  int size_;
  std::vector<uint8_t> pixels_;
};

std::vector<PngColor> palette() {
  std::vector<PngColor> colors;
  for (int i = 0; i < kShades; ++i) {
    const int left = kShades - 1 - i;
    colors.push_back({static_cast<uint8_t>(8 + 247 * left / (kShades - 1)),
                      static_cast<uint8_t>(48 + 207 * left / (kShades - 1)),
                      static_cast<uint8_t>(107 + 148 * left / (kShades - 1))});
  }
  colors.push_back({0, 0, 0});
  colors.push_back({255, 255, 255});
  return colors;
}

}  // namespace

Picture confusion_picture(const ConfusionTable& table) {
  const int n = static_cast<int>(table.classes.size()), size = kMargin + n * kCell + 2;
  Canvas canvas(size);
  for (int truth = 0; truth < n; ++truth) {
    const int middle = kMargin + truth * kCell + kCell / 2;
    canvas.write(kMargin / 2, middle, std::to_string(truth), kBlack);
    canvas.write(middle, kMargin / 2, std::to_string(truth), kBlack);
    double all = 0;
    for (int p = 0; p < n; ++p) all += table.at(static_cast<size_t>(truth), static_cast<size_t>(p));
    for (int p = 0; p < n; ++p) {
      const double count = table.at(static_cast<size_t>(truth), static_cast<size_t>(p));
      const double share = all > 0 && std::isfinite(count) ? count / all : 0;
      const int left = kMargin + p * kCell, top = kMargin + truth * kCell;
      canvas.fill(left, top, kCell, kCell, kShades / 4);
      canvas.fill(left + 1, top + 1, kCell - 2, kCell - 2, static_cast<uint8_t>(share * (kShades - 1)));
      if (count > 0)
        canvas.write(left + kCell / 2, middle, std::to_string(std::lround(100 * share)), share > 0.5 ? kWhite : kBlack);
    }
  }
  return {size, size, make_png(size, size, canvas.pixels(), palette())};
}

}  // namespace tandem
