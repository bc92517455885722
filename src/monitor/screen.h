// monitor/screen.h -- what the terminal shows, as lines of styled text for a given size. Pure: no terminal here.
#pragma once

#include <string>
#include <vector>

#include "monitor/sample.h"
#include "monitor/trails.h"

namespace tandem {

enum class Style { kPlain, kSoft, kBold, kGood, kWarn, kBad, kAccent, kBar };

struct Piece {
  Style style = Style::kPlain;
  std::string text;
};
using ScreenLine = std::vector<Piece>;

struct ScreenState {
  int scroll = 0;  // lines; kept in range by draw_screen
  bool processes = true, ranks = true, help = false, paused = false;
  bool utf8 = true;
  double waited_s = 0;  // for the driver, beyond the interval
  std::string note;     // what else the user must know: why no history is kept
};

// At most `height` lines, none wider than `width` columns.
std::vector<ScreenLine> draw_screen(const MonitorSample& sample, const Trails& trails, ScreenState& state, int width,
                                    int height);

}  // namespace tandem
