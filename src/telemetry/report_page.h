// telemetry/report_page.h -- style and drawing code of the report, compiled in.
#pragma once

namespace tandem {
extern const char* const kReportCss;
extern const char* const kReportJs;
}  // namespace tandem
