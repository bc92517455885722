// tools/bench/bench_page.cc -- the page of `tandem bench --plot`: SVG in one HTML file.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "telemetry/html_text.h"
#include "tools/bench/bench.h"

namespace tandem {
namespace {

constexpr double kWidth = 560, kHeight = 300, kLeft = 70, kRight = 20, kTop = 20, kBottom = 40;
constexpr const char* kColours[] = {"#2a6fdb", "#d9822b", "#2e9e5b", "#b04ac7", "#c0392b", "#16808a"};

// 1, 2 or 5 times a power of ten, so that about five fit.
double tick_of(double most) {
  const double rough = most / 5, power = std::pow(10, std::floor(std::log10(rough)));
  for (const double step : {1.0, 2.0, 5.0})
    if (step * power >= rough) return step * power;
  return 10 * power;
}

std::string short_number(double value) {
  if (value >= 1e6) return fmt::format("{:g}M", value / 1e6);
  return value >= 1e3 ? fmt::format("{:g}k", value / 1e3) : fmt::format("{:g}", value);
}

std::string plot(const std::vector<const BenchRow*>& rows) {
  size_t most_devices = 1;
  double most = 0;
  std::map<int64_t, std::vector<const BenchRow*>> lines;
  for (const BenchRow* row : rows) {
    most_devices = std::max(most_devices, row->count);
    most = std::max(most, row->rate.mean() + row->rate.deviation().value_or(0));
    if (!row->baseline) lines[row->batch].push_back(row);
  }
  if (most <= 0) return "";
  const double tick = tick_of(most), top = tick * std::ceil(most / tick);
  const auto x = [&](double devices) {
    const double span = most_devices > 1 ? static_cast<double>(most_devices - 1) : 1;
    return kLeft + (kWidth - kLeft - kRight) * (most_devices > 1 ? (devices - 1) / span : .5);
  };
  const auto y = [&](double rate) { return kHeight - kBottom - (kHeight - kTop - kBottom) * rate / top; };
  std::string svg = fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\">", kWidth, kHeight);
  for (double at = 0; at <= top + tick / 2; at += tick)
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/><text x=\"{3}\" y=\"{4:.1f}\" "
        "text-anchor=\"end\">{5}</text>",
        kLeft, kWidth - kRight, y(at), kLeft - 6, y(at) + 4, short_number(at));
  for (size_t n = 1; n <= most_devices; ++n)
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>", x(static_cast<double>(n)),
                       kHeight - kBottom + 18, n);
  svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">devices</text>", (kLeft + kWidth - kRight) / 2,
                     kHeight - 6);
  size_t colour = 0;
  for (const auto& [batch, line] : lines) {
    const char* paint = kColours[colour++ % std::size(kColours)];
    std::string points;
    for (const BenchRow* row : line) {
      const double at = x(static_cast<double>(row->count));
      points += fmt::format("{:.1f},{:.1f} ", at, y(row->rate.mean()));
      svg += fmt::format("<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\" stroke=\"{3}\"/>", at,
                         y(row->rate.mean() - row->rate.deviation().value_or(0)),
                         y(row->rate.mean() + row->rate.deviation().value_or(0)), paint);
      svg += fmt::format(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"{}\"><title>{} on {}: {:.0f} samples/s, "
          "{}</title></circle>",
          at, y(row->rate.mean()), paint, html_text(row->bench), html_text(row->devices), row->rate.mean(),
          row->speedup_text());
    }
    svg += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>", points, paint);
    if (line.size() > 1 && line.front()->count == 1) {
      const double ideal = std::min(line.front()->rate.mean() * static_cast<double>(most_devices), top);
      const double reach = ideal / line.front()->rate.mean();
      svg +=
          fmt::format("<line class=\"ideal\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>",
                      x(1), y(line.front()->rate.mean()), x(reach), y(ideal), paint);
    }
    svg += fmt::format("<text x=\"{}\" y=\"{}\" style=\"fill:{}\" class=\"key\">batch {}</text>", kLeft + 8,
                       kTop + 14 * static_cast<double>(colour), paint, batch);
  }
  return svg + "</svg>";
}

std::string rows_table(const std::vector<const BenchRow*>& rows) {
  std::string text =
      "<table><tr><th>devices<th><th>batch<th>samples/s<th>+-<th>ms/iteration<th>speedup<th>efficiency</tr>";
  for (const BenchRow* row : rows)
    text += fmt::format("<tr><td>{}<td class=\"name\">{}<td>{}<td>{:.0f}<td>{}<td>{:.3f}<td>{}<td>{}</tr>", row->count,
                        html_text(row->devices), row->batch, row->rate.mean(),
                        row->rate.deviation() ? fmt::format("{:.0f}", *row->rate.deviation()) : "-", row->ms.mean(),
                        row->speedup_text(), row->efficiency_text());
  return text + "</table>";
}

}  // namespace

std::string bench_page(const std::vector<BenchRow>& rows, const std::string& machine, const std::string& note) {
  std::string body;
  std::vector<std::string> order;
  for (const BenchRow& row : rows)
    if (std::ranges::find(order, row.bench) == order.end()) order.push_back(row.bench);
  for (const std::string& bench : order) {
    std::vector<const BenchRow*> some;
    for (const BenchRow& row : rows)
      if (row.bench == bench) some.push_back(&row);
    body += fmt::format("<section><h2>{}</h2><p>samples a second</p>{}{}</section>", html_text(bench), plot(some),
                        rows_table(some));
  }
  return fmt::format(
      R"(<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>tandem bench</title><style>
:root{{color-scheme:light dark;--text:#222;--page:#fff;--line:#ddd}}
@media (prefers-color-scheme:dark){{:root{{--text:#ddd;--page:#161616;--line:#3a3a3a}}}}
body{{font:14px/1.5 system-ui,sans-serif;color:var(--text);background:var(--page);max-width:960px;margin:2em auto;padding:0 1em}}
svg{{width:100%;max-width:640px;display:block}}svg text{{font-size:11px;fill:var(--text)}}svg text.key{{font-weight:600}}
.grid{{stroke:var(--line)}}.ideal{{stroke-dasharray:4 4;opacity:.6}}
table{{border-collapse:collapse}}td,th{{padding:.15em .7em;text-align:right;border-bottom:1px solid var(--line)}}td.name{{text-align:left}}
</style><h1>tandem bench</h1><p>{}<br>{}; dashed: as many times one device</p>{}</html>
)",
      html_text(machine), html_text(note), body);
}

}  // namespace tandem
