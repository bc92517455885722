// monitor/monitor_page.h -- the page of `tandem monitor --web`, inside the program: one HTML text with places for the
// nonce, the style, the code and the first sample.
#pragma once

namespace tandem {

extern const char* const kMonitorHtml;  // {NONCE} {CSS} {JS} {FIRST}
extern const char* const kMonitorCss;
extern const char* const kMonitorJs;

}  // namespace tandem
