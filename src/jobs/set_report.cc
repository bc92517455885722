#include "jobs/set_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/errors.h"
#include "jobs/agents_file.h"
#include "jobs/set_display.h"
#include "telemetry/atomic_file.h"
#include "telemetry/html_text.h"
#include "telemetry/human.h"
#include "telemetry/metrics_file.h"
#include "telemetry/run_summary.h"

namespace tandem {
namespace {

constexpr const char* kColors[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"};
constexpr int kWidth = 860, kLeft = 60, kRow = 26, kPlot = 240;
constexpr size_t kMostPoints = 400;

std::string color_of(size_t job) { return kColors[job % std::size(kColors)]; }

std::string report_number(const nlohmann::json& object, const char* key, int digits) {
  if (!object.contains(key) || !object[key].is_number()) return "-";
  return fmt::format("{:.{}f}", object[key].get<double>(), digits);
}

std::string table(const nlohmann::json& file, const std::filesystem::path& dir) {
  std::string text =
      "<table><tr><th>agent<th>steps<th>time<th>return<th>score<th>rule of thumb<th>digest<th>devices<th>state</tr>\n";
  size_t at = 0;
  for (const auto& job : file.at("jobs")) {
    const std::string run = job.value("run", ""), name = job.value("name", "");
    std::error_code none;
    const bool page = std::filesystem::exists(dir / run / "report.html", none);
    const std::string shown =
        page ? fmt::format("<a href=\"{}/report.html\">{}</a>", html_text(run), html_text(name)) : html_text(name);
    text += fmt::format(
        "<tr><td><span style=\"color:{}\">&#9632;</span> "
        "{}<td>{}<td>{}<td>{}<td><strong>{}</strong><td>{}<td><code>{}</code><td>{}<td>{}</tr>\n",
        color_of(at++), shown, job.value("step", int64_t{0}), duration_text(job.value("seconds", 0.0)),
        report_number(job, "average_return", 1), report_number(job, "score", 2), report_number(job, "rule_score", 2),
        html_text(job.value("digest", "").substr(0, 16)),
        html_text(fmt::format("{}", fmt::join(job.value("devices", std::vector<std::string>()), " "))),
        html_text(job.value("state", "")));
  }
  return text + "</table>\n";
}

std::string course(const nlohmann::json& file) {
  const auto devices = file.value("devices", std::vector<std::string>());
  double end = 0;
  for (const auto& part : file.at("course")) end = std::max(end, part.at("end").get<double>());
  if (devices.empty() || !(end > 0)) return "";
  const double scale = (kWidth - kLeft) / end;
  std::string text = fmt::format("<h2>Who worked on what</h2><svg viewBox=\"0 0 {} {}\">\n", kWidth,
                                 static_cast<int>(devices.size()) * kRow + 20);
  for (size_t d = 0; d < devices.size(); ++d)
    text += fmt::format("<text x=\"0\" y=\"{}\">{}</text>\n", d * kRow + 17, html_text(devices[d]));
  for (const auto& part : file.at("course")) {
    const size_t job = part.at("job"), device = part.at("device");
    const double begin = part.at("begin"), stop = part.at("end");
    if (job >= file.at("jobs").size() || device >= devices.size()) continue;
    const std::string run = file.at("jobs")[job].value("run", "");
    const std::string name = std::filesystem::path(run).filename().string();  // several agents may share it
    text += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\"><title>{}: {:.1f} s to {:.1f} "
        "s</title></rect>\n",
        kLeft + begin * scale, device * kRow + 3, std::max(1.0, (stop - begin) * scale - 1), kRow - 6, color_of(job),
        html_text(name), begin, stop);
    if ((stop - begin) * scale > 70)
      text += fmt::format("<text class=\"in\" x=\"{:.1f}\" y=\"{}\">{}</text>\n", kLeft + begin * scale + 4,
                          device * kRow + 17, html_text(name));
  }
  return text + fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{:.0f} s</text></svg>\n", kWidth,
                            devices.size() * kRow + 16, end);
}

// The scores of one run, thinned to a few hundred points, each the mean of its neighbours.
std::vector<std::pair<double, double>> scores_of(const std::filesystem::path& metrics, const std::string& agent) {
  std::vector<std::pair<double, double>> all, thin;
  try {
    read_metrics(metrics, [&](const StepRecord& record) {
      for (const auto& [name, value] : record.metrics)
        if ((name == "score" || name == agent + ".score") && std::isfinite(value))
          all.emplace_back(static_cast<double>(record.step), value);
    });
  } catch (const IoError&) {
    return {};
  }
  const size_t width = std::max<size_t>(1, (all.size() + kMostPoints - 1) / kMostPoints);
  for (size_t i = 0; i < all.size(); i += width) {
    const size_t end = std::min(all.size(), i + width);
    double step = 0, value = 0;
    for (size_t k = i; k < end; ++k) step += all[k].first, value += all[k].second;
    thin.emplace_back(step / static_cast<double>(end - i), value / static_cast<double>(end - i));
  }
  return thin;
}

std::string curves(const nlohmann::json& file, const std::filesystem::path& dir) {
  std::vector<std::vector<std::pair<double, double>>> lines;
  double last = 1, least = 0, most = 1;
  for (const auto& job : file.at("jobs")) {
    lines.push_back(scores_of(dir / job.value("run", "") / "metrics.jsonl", job.value("agent", "")));
    for (const auto& [step, score] : lines.back()) {
      last = std::max(last, step);
      least = std::min(least, std::max(score, -0.5));
      most = std::max(most, score);
    }
  }
  const auto x = [&](double step) { return kLeft + step / last * (kWidth - kLeft); };
  const auto y = [&](double score) { return 10 + (most - std::max(score, least)) / (most - least) * (kPlot - 20); };
  std::string text = fmt::format(
      "<h2>Scores while training</h2><p>0 is random play, 1 the solver; while an agent explores it plays at random "
      "often.</p>"
      "<svg viewBox=\"0 0 {} {}\">\n",
      kWidth, kPlot + 16);
  for (const double mark : {0.0, 0.5, 1.0})
    text += fmt::format(
        "<line x1=\"{}\" y1=\"{:.1f}\" x2=\"{}\" y2=\"{:.1f}\"/><text x=\"{}\" y=\"{:.1f}\" "
        "text-anchor=\"end\">{}</text>\n",
        kLeft, y(mark), kWidth, y(mark), kLeft - 6, y(mark) + 4, mark);
  for (size_t j = 0; j < lines.size(); ++j) {
    std::string points;
    for (const auto& [step, score] : lines[j]) points += fmt::format("{:.1f},{:.1f} ", x(step), y(score));
    if (!points.empty()) text += fmt::format("<polyline stroke=\"{}\" points=\"{}\"/>\n", color_of(j), points);
  }
  return text + fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">step {:.0f}</text></svg>\n", kWidth,
                            kPlot + 14, last);
}

}  // namespace

std::string make_set_report(const std::filesystem::path& dir) {
  const nlohmann::json run = read_run_json(dir);
  const std::string id = html_text(run.value("id", dir.filename().string()));
  std::string body;
  try {
    const nlohmann::json file = read_agents_file(dir).value_or(nlohmann::json::object());
    const std::string seconds = report_number(file, "seconds", 1),
                      forecast = report_number(file, "forecast_seconds", 1);
    body = fmt::format("<p>{}; strategy {}, assignment {}; {} s (forecast {} s)</p>\n", html_text(present_status(run)),
                       html_text(file.value("strategy", "-")), html_text(file.value("assignment", "-")), seconds,
                       forecast) +
           table(file, dir) + course(file) + curves(file, dir);
  } catch (const nlohmann::json::exception& error) {
    body = fmt::format("<p>agents.json can't be read: {}</p>", html_text(error.what()));
  }
  return fmt::format(R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{0}: tandem report</title>
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>
:root{{color-scheme:light dark}} body{{font:15px/1.5 system-ui,sans-serif;max-width:900px;margin:2em auto;padding:0 1em}}
table{{border-collapse:collapse}} th,td{{text-align:left;padding:.2em .8em .2em 0;border-bottom:1px solid #8884}}
svg{{width:100%;height:auto}} svg text{{font:12px system-ui,sans-serif;fill:currentColor}} svg text.in{{fill:#fff}}
line{{stroke:#8886}} polyline{{fill:none;stroke-width:1.5}}
</style></head>
<body><h1>{0}</h1>
{1}</body></html>
)",
                     id, body);
}

std::filesystem::path write_set_report(const std::filesystem::path& dir) {
  const auto path = dir / "report.html";
  write_file_atomically(path, make_set_report(dir), Durability::kProcessDeath);
  return path;
}

}  // namespace tandem
