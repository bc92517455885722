#include "monitor/screen.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "monitor/words.h"
#include "telemetry/human.h"

namespace tandem {
namespace {

constexpr float kOwn = std::numeric_limits<float>::quiet_NaN();
constexpr size_t kShownProcesses = 8;

// One mark for each character that plain ASCII does not have.
std::string without_utf8(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80)
      out += c;
    else if (byte >= 0xC0)
      out += '?';
  }
  return out;
}

// A line that never grows past its width.
class LineMaker {
 public:
  LineMaker(int width, bool utf8) : width_(width), utf8_(utf8) {}
  int left() const { return width_ - used_; }
  LineMaker& add(Style style, const std::string& text) {
    if (left() <= 0 || text.empty()) return *this;
    std::string shown = fit(utf8_ ? text : without_utf8(text), left());
    used_ += display_width(shown);
    line_.push_back({style, std::move(shown)});
    return *this;
  }
  LineMaker& add(const std::string& text) { return add(Style::kPlain, text); }
  // Exactly `columns` wide, right-aligned if negative.
  LineMaker& cell(Style style, const std::string& text, int columns) {
    const int size = std::abs(columns);
    const std::string shown = fit(text, size);
    const std::string room(static_cast<size_t>(std::max(0, size - display_width(shown))), ' ');
    return add(style, columns < 0 ? room + shown : shown + room);
  }
  // "[|||||     ]"
  LineMaker& bar(std::optional<double> part, int columns, Style style) {
    if (columns < 4) return *this;
    const int inside = columns - 2;
    const int full = part ? static_cast<int>(std::lround(*part * inside)) : 0;
    add(Style::kSoft, "[").add(style, std::string(static_cast<size_t>(full), '|'));
    return add(Style::kSoft, std::string(static_cast<size_t>(inside - full), part ? ' ' : '-') + "]");
  }
  // Whole or not at all.
  LineMaker& word(Style style, const std::string& text) {
    return display_width(text) <= left() ? add(style, text) : *this;
  }
  ScreenLine take() { return std::move(line_); }

 private:
  int width_, used_ = 0;
  bool utf8_;
  ScreenLine line_;
};

Style heat_style(const GpuFacts& facts, const GpuReading& gpu) {
  if (!gpu.temperature_c) return Style::kPlain;
  const int slowdown = facts.slowdown_c.value_or(90);
  return *gpu.temperature_c >= slowdown       ? Style::kBad
         : *gpu.temperature_c >= slowdown - 5 ? Style::kWarn
                                              : Style::kPlain;
}

class Screen {
 public:
  Screen(const MonitorSample& sample, const Trails& trails, const ScreenState& state, int width)
      : sample_(sample), trails_(trails), state_(state), width_(width) {}

  ScreenLine title() const {
    const HostReading& host = sample_.host;
    const std::string end =
        state_.paused ? " paused " : " " + utc_iso(sample_.time).substr(11, 8) + (width_ >= 60 ? " UTC " : " ");
    const int room = width_ - display_width(end);
    LineMaker line(room > 12 ? room : width_, state_.utf8);
    line.add(Style::kBar, width_ >= 60 ? " tandem monitor  " : " ").add(Style::kBar, host.name);
    line.word(Style::kBar, fmt::format("  cpu {} of {}", percent_text(host.cpu_percent), host.cpus));
    line.word(Style::kBar, fmt::format("  memory {}", memory_text(host.memory_used_bytes, host.memory_total_bytes)));
    if (!sample_.driver.empty()) line.word(Style::kBar, "  driver " + sample_.driver);
    if (line.left() > 0) line.add(Style::kBar, std::string(static_cast<size_t>(line.left()), ' '));
    ScreenLine title = line.take();
    if (room > 12) title.push_back({Style::kBar, end});
    return title;
  }

  void gpus(std::vector<ScreenLine>& lines, int per_gpu) const {
    if (sample_.gpus.empty()) {
      LineMaker line = maker();
      line.add(Style::kSoft, "no GPU" + (sample_.gpu_trouble.empty() ? "" : ": " + sample_.gpu_trouble));
      lines.push_back(line.take());
      host(lines);
      return;
    }
    if (!sample_.driver_note.empty()) {
      LineMaker line = maker();
      line.add(Style::kWarn, "driver " + driver_text(sample_) + ": see `tandem doctor`");
      lines.push_back(line.take());
    }
    for (size_t i = 0; i < sample_.gpus.size(); ++i) gpu(lines, i, per_gpu);
  }

  void runs(std::vector<ScreenLine>& lines) const {
    if (sample_.runs.empty()) {
      LineMaker line = maker();
      line.add(Style::kSoft, "no run is going on");
      lines.push_back(line.take());
    }
    for (const RunReading& one : sample_.runs) run(lines, one);
    if (sample_.runs_left_out > 0) {
      LineMaker line = maker();
      line.add(Style::kSoft, fmt::format("and {} more runs", sample_.runs_left_out));
      lines.push_back(line.take());
    }
  }

 private:
  LineMaker maker() const { return {width_, state_.utf8}; }
  std::string spark(const std::string& source, size_t value, int columns, float low, float high) const {
    return sparkline(trails_.of(source, value), columns, state_.utf8, low, high);
  }

  void host(std::vector<ScreenLine>& lines) const {
    const HostReading& host = sample_.host;
    LineMaker line = maker();
    const auto part = part_of(host.cpu_percent, 100.0);
    line.cell(Style::kBold, "CPU", 7).bar(part, std::clamp(width_ / 4, 8, 40), Style::kGood);
    line.cell(Style::kPlain, percent_text(host.cpu_percent), -6).add("  ");
    if (line.left() > 12) line.add(Style::kAccent, spark("host", 0, std::min(line.left(), 60), 0, 100));
    lines.push_back(line.take());
    LineMaker memory = maker();
    const auto used = host.memory_used_bytes ? std::optional<double>(*host.memory_used_bytes) : std::nullopt;
    const auto all = host.memory_total_bytes ? std::optional<double>(*host.memory_total_bytes) : std::nullopt;
    memory.cell(Style::kBold, "Memory", 7).bar(part_of(used, all), std::clamp(width_ / 4, 8, 40), Style::kGood);
    memory.add(" " + memory_text(host.memory_used_bytes, host.memory_total_bytes));
    if (host.load) memory.word(Style::kSoft, fmt::format("  load {:.2f}", *host.load));
    lines.push_back(memory.take());
  }

  void gpu(std::vector<ScreenLine>& lines, size_t at, int per_gpu) const {
    const GpuFacts& facts = sample_.facts[at];
    const GpuReading& gpu = sample_.gpus[at];
    const std::string source = fmt::format("gpu:{}", facts.index);
    LineMaker line = maker();
    const std::string held = short_throttle_text(gpu);
    const Style mark = held.empty() ? Style::kBold : held == "power" ? Style::kWarn : Style::kBad;
    line.cell(mark, std::to_string(facts.index), -2).add(" ");
    if (width_ >= 56) line.cell(Style::kPlain, short_gpu_name(facts), width_ >= 110 ? 18 : 11).add(" ");
    const std::string trouble = !gpu.trouble.empty() ? gpu.trouble : facts.trouble;
    if (!trouble.empty()) {
      line.add(Style::kBad, trouble);
      lines.push_back(line.take());
      return;
    }
    const auto use = part_of(gpu.utilisation_percent, 100.0);
    const auto used = gpu.memory_used_bytes ? std::optional<double>(*gpu.memory_used_bytes) : std::nullopt;
    const auto all = facts.memory_bytes ? std::optional<double>(*facts.memory_bytes) : std::nullopt;
    const auto limit = gpu.power_limit_w ? gpu.power_limit_w : facts.power_limit_w;
    const auto heat =
        part_of(gpu.temperature_c, facts.slowdown_c ? std::optional<double>(*facts.slowdown_c) : std::nullopt);
    const Style hot = heat_style(facts, gpu),
                full = part_of(used, all).value_or(0) > 0.97 ? Style::kWarn : Style::kGood;
    const int bars = width_ >= 170 ? 18 : width_ >= 130 ? 12 : width_ >= 100 ? 8 : width_ >= 76 ? 6 : 0;
    if (width_ < 56) {  // a narrow one has no room for limits
      line.cell(Style::kPlain, percent_text(gpu.utilisation_percent), -5)
          .cell(Style::kPlain, memory_text(gpu.memory_used_bytes, facts.memory_bytes), -13);
      line.cell(Style::kPlain, gpu.power_w ? fmt::format("{:.0f} W", *gpu.power_w) : "-", -7);
      line.cell(hot, gpu.temperature_c ? fmt::format("{} C", *gpu.temperature_c) : "-", -6);
      line.word(mark, sample_.hidden(at) ? " hidden" : held.empty() ? "" : " " + held);
      lines.push_back(line.take());
      if (per_gpu == 1) return;
    } else {
      line.bar(use, bars, Style::kGood).cell(Style::kPlain, percent_text(gpu.utilisation_percent), -6).add(" ");
      line.bar(part_of(used, all), bars, full)
          .cell(full == Style::kWarn ? full : Style::kPlain, memory_text(gpu.memory_used_bytes, facts.memory_bytes),
                -13)
          .add(" ");
      line.bar(part_of(gpu.power_w, limit), bars, Style::kAccent)
          .cell(Style::kPlain, power_text(facts, gpu), -10)
          .add(" ");
      line.bar(heat, width_ >= 130 ? bars : 0, hot == Style::kPlain ? Style::kGood : hot);
      line.cell(hot, temperature_text(facts, gpu), -8);
      if (per_gpu == 1) {
        line.word(mark, sample_.hidden(at) ? " hidden" : held.empty() ? "" : " " + held);
        lines.push_back(line.take());
        return;
      }
      if (line.left() > 10) line.add(" ").add(Style::kAccent, spark(source, 0, std::min(line.left(), 60), 0, 100));
      lines.push_back(line.take());
    }
    gpu_details(lines, at, held);
    if (per_gpu >= 3 && state_.processes && gpu.processes) gpu_processes(lines, *gpu.processes);
  }

  void gpu_details(std::vector<ScreenLine>& lines, size_t at, const std::string& held) const {
    const GpuReading& gpu = sample_.gpus[at];
    const std::string note = gpu_note(sample_, at);
    LineMaker more = maker();
    more.add("   ").word(Style::kSoft, "clocks ").word(Style::kPlain, clocks_text(gpu));
    more.word(Style::kSoft, "  fan ").word(Style::kPlain, percent_text(gpu.fan_percent));
    more.word(Style::kSoft, "  ECC ")
        .word(gpu.ecc_uncorrected.value_or(0) > 0 ? Style::kBad : Style::kPlain, ecc_text(gpu));
    more.word(Style::kSoft, "  PCIe ").word(Style::kPlain, traffic_text(gpu));
    if (display_width(note) + 2 <= more.left())
      more.add(Style::kWarn, note.empty() ? "" : "  " + note);
    else
      more.add(Style::kWarn, (held.empty() ? "" : "  held by " + held) + (sample_.hidden(at) ? "  hidden" : ""));
    lines.push_back(more.take());
  }

  void gpu_processes(std::vector<ScreenLine>& lines, const std::vector<GpuProcess>& processes) const {
    for (size_t i = 0; i < std::min(processes.size(), kShownProcesses); ++i) {
      LineMaker process = maker();
      process.add(Style::kSoft, "     " + process_text(sample_, processes[i]));
      lines.push_back(process.take());
    }
    if (processes.size() > kShownProcesses) {
      LineMaker process = maker();
      process.add(Style::kSoft, fmt::format("     and {} more processes", processes.size() - kShownProcesses));
      lines.push_back(process.take());
    }
  }

  void run(std::vector<ScreenLine>& lines, const RunReading& run) const {
    const Style status = run.stalled()          ? Style::kBad
                         : run.alive()          ? Style::kGood
                         : run.status == "done" ? Style::kAccent
                                                : Style::kWarn;
    LineMaker line = maker();
    const std::string name = run.name.empty() ? run.recipe : run.name;
    if (width_ >= 90)
      line.add(Style::kBold, name).add(Style::kSoft, " " + run.id);
    else
      line.add(Style::kBold, name + " " + short_run_id(run.id));
    line.add(" ").add(status, run.status);
    if (!run.host.empty()) line.add(Style::kSoft, " on " + run.host);
    line.add(Style::kSoft, "  step ").add(step_text(run));
    if (!run.figures.text().empty()) line.add(Style::kAccent, "  " + run.figures.text());
    line.add(Style::kSoft, "  loss ").add(run.loss ? loss_text(*run.loss) : "-");
    if (run.alive()) {
      const std::string whole = rate_text(run), first = whole.substr(0, whole.find(','));
      const bool fits = display_width(whole) + 2 <= line.left();
      line.word(run.stalled() ? Style::kBad : Style::kPlain, "  " + (fits ? whole : first));
    }
    if (run.seconds_left) line.word(Style::kSoft, fmt::format("  {} left", duration_text(*run.seconds_left)));
    lines.push_back(line.take());
    if (run.alive()) {
      LineMaker second = maker();
      const auto done = run.total_steps > 0
                            ? part_of(static_cast<double>(run.step), static_cast<double>(run.total_steps))
                            : std::nullopt;
      second.add("   ");
      if (done) second.bar(done, std::clamp(width_ / 5, 8, 30), Style::kAccent);
      const int curve = std::clamp((second.left() - 30) / 2, 0, 40);
      if (curve >= 8) {
        const LearningFigures::Agent* const agent = run.figures.only();
        const size_t shown = !agent ? kRunLoss : std::isfinite(agent->score) ? kRunScore : kRunReturn;
        second.add(Style::kSoft, shown == kRunLoss ? " loss " : shown == kRunScore ? " score " : " return ");
        second.add(Style::kAccent, spark("run:" + run.id, shown, curve, kOwn, kOwn));
        second.add(Style::kSoft, " rate ").add(Style::kAccent, spark("run:" + run.id, 1, curve, 0, kOwn));
      }
      second.word(Style::kSoft, " " + phase_text(run));
      lines.push_back(second.take());
    }
    if (state_.ranks) {
      for (const RankReading& rank : run.ranks) lines.push_back(rank_line(rank));
    }
    if (!run.warning.empty()) {
      LineMaker warning = maker();
      warning.add(Style::kWarn, "   " + run.warning);
      lines.push_back(warning.take());
    }
    if (run.event_time && run.event_text != run.warning) {
      LineMaker event = maker();
      event.add(Style::kSoft, fmt::format("   {} {}", utc_iso(*run.event_time).substr(11, 8), run.event_text));
      lines.push_back(event.take());
    }
  }

  ScreenLine rank_line(const RankReading& rank) const {
    LineMaker line = maker();
    line.add(Style::kSoft, "   rank ").cell(Style::kBold, std::to_string(rank.rank), 3);
    line.cell(Style::kPlain, rank.device, 8).cell(Style::kPlain, shards_text(rank), width_ >= 60 ? 14 : 13);
    const Style state = rank.state == "ended" ? Style::kWarn : Style::kPlain;
    if (width_ >= 56) line.cell(state, width_ >= 76 ? rank_state_text(rank) : rank.state, width_ >= 76 ? 19 : 10);
    const auto busy = part_of(rank.busy_percent, 100.0);
    if (width_ >= 100) line.bar(busy, 10, Style::kGood);
    line.word(Style::kPlain, fmt::format(" busy {:>5}", percent_text(rank.busy_percent)));
    line.word(Style::kPlain,
              fmt::format("  {:>6} shards/s", rank.shards_per_s ? short_number(*rank.shards_per_s) : "-"));
    line.word(Style::kSoft, fmt::format("  cpu {:>5}", percent_text(rank.cpu_percent)));
    if (rank.memory_bytes) line.word(Style::kSoft, "  " + bytes_text(*rank.memory_bytes));
    if (rank.restarts > 0) line.word(Style::kWarn, fmt::format("  started again {} x", rank.restarts));
    return line.take();
  }

  const MonitorSample& sample_;
  const Trails& trails_;
  const ScreenState& state_;
  int width_;
};

std::vector<std::string> help_lines() {
  return {"q        quit",
          "up down  scroll (also k j, page up, page down, home, end)",
          "p        processes of the GPUs, shown or not",
          "r        ranks of the runs, shown or not",
          "space    pause",
          "h ?      this help",
          "",
          "temperature: now / where the hardware slows down; power: now / limit",
          "clocks: SM / memory; PCIe: into / out of the GPU; ECC: corrected / not",
          "busy: share of time in which a worker computes"};
}

}  // namespace

std::vector<ScreenLine> draw_screen(const MonitorSample& sample, const Trails& trails, ScreenState& state, int width,
                                    int height) {
  std::vector<ScreenLine> lines;
  if (width <= 0 || height <= 0) return lines;
  const Screen screen(sample, trails, state, width);
  std::vector<ScreenLine> body;
  const int room = std::max(0, height - 2);
  if (state.help) {
    for (const std::string& text : help_lines()) body.push_back(LineMaker(width, state.utf8).add(text).take());
  } else {
    // As much of each GPU as leaves the runs in view.
    std::vector<ScreenLine> runs;
    screen.runs(runs);
    for (int per_gpu = 3; per_gpu >= 1; --per_gpu) {
      body.clear();
      screen.gpus(body, per_gpu);
      if (static_cast<int>(body.size() + runs.size()) <= room) break;
    }
    body.insert(body.end(), runs.begin(), runs.end());
  }
  state.scroll = std::clamp(state.scroll, 0, std::max(0, static_cast<int>(body.size()) - room));
  lines.push_back(screen.title());
  for (int i = state.scroll; i < static_cast<int>(body.size()) && i < state.scroll + room; ++i)
    lines.push_back(body[i]);
  if (height < 2) return lines;
  while (static_cast<int>(lines.size()) < height - 1) lines.push_back({});
  LineMaker help(width, state.utf8);
  if (state.waited_s > 5)
    help.add(Style::kWarn, fmt::format(" the driver has not answered for {:.0f} s ", state.waited_s));
  help.add(Style::kSoft, " q quit");
  if (static_cast<int>(body.size()) > room)
    help.word(Style::kSoft,
              fmt::format("  up/down {}-{} of {}", state.scroll + 1,
                          std::min<int>(state.scroll + room, static_cast<int>(body.size())), body.size()));
  for (const char* word : {"  h help", "  space pause", "  p processes", "  r ranks"}) help.word(Style::kSoft, word);
  if (!state.note.empty()) help.add(Style::kWarn, "  " + state.note);
  lines.push_back(help.take());
  return lines;
}

}  // namespace tandem
