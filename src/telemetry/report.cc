#include "telemetry/report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "telemetry/atomic_file.h"
#include "telemetry/html_text.h"
#include "telemetry/report_data.h"
#include "telemetry/report_page.h"

namespace tandem {
namespace {

constexpr size_t kLargestPage = 290'000;

// JSON inside a script element: nothing in it may end the element, whatever a metric is called.
std::string embedded(const nlohmann::json& data) {
  std::string out;
  for (const char c : data.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)) {
    if (c == '<')
      out += "\\u003c";
    else
      out += c;
  }
  return out;
}

std::string text_of(const nlohmann::json& object, const char* key) {
  return object.contains(key) && object[key].is_string() ? object[key].get<std::string>() : "";
}

}  // namespace

std::string report_page(const nlohmann::json& data, const std::string& without_script) {
  const std::string title = text_of(data["run"], "title"), id = text_of(data["run"], "id");
  // default-src 'none': the browser itself refuses any network access from this page.
  return fmt::format(R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{0}: tandem report</title>
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<style>{1}</style></head>
<body><noscript><h1>{0}</h1><p>Status: {2}. The curves of this page are drawn by the script inside it; the same numbers are in metrics.jsonl.</p>{5}</noscript>
<div id="page"></div>
<script type="application/json" id="data">{3}</script>
<script>{4}</script></body></html>
)",
                     html_text(title.empty() ? id : title), kReportCss, html_text(text_of(data, "status")),
                     embedded(data), kReportJs, without_script);
}

std::string make_report(const std::filesystem::path& run_dir) {
  ReportLimits limits;
  std::string html = report_page(collect_report(run_dir, limits));
  while (html.size() > kLargestPage && limits.most_buckets > 60) {  // many metrics: fewer points each
    limits.most_buckets /= 2;
    limits.most_events = std::max<size_t>(limits.most_events / 2, 20);
    limits.most_settings = std::max<size_t>(limits.most_settings / 2, 100);
    html = report_page(collect_report(run_dir, limits));
  }
  return html;
}

std::filesystem::path write_report(const std::filesystem::path& run_dir) {
  const auto path = run_dir / "report.html";
  write_file_atomically(path, make_report(run_dir), Durability::kProcessDeath);
  return path;
}

}  // namespace tandem
