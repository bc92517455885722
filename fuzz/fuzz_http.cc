// What anybody may send to the monitor's page: the head of a request, cut anywhere, and what is asked with it.
#include <cstdint>
#include <string_view>

#include "monitor/web.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static tandem::History history("");
  static tandem::MonitorSite site("0123456789abcdef0123456789abcdef", "box", true, history);
  static const bool shown = (site.show(tandem::MonitorSample{}), true);
  if (!shown) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const tandem::HttpParse parse = tandem::parse_http_request(bytes);
  if (parse.state != tandem::HttpParse::State::kDone) return 0;
  if (parse.used > size || parse.used > tandem::kLongestHead + 4) __builtin_trap();
  const tandem::HttpResponse answer = site.answer(parse.request);
  const bool knew = bytes.find("0123456789abcdef0123456789abcdef") != std::string_view::npos ||
                    bytes.find('%') != std::string_view::npos;  // or wrote it encoded
  if (answer.status == 200 && !knew) __builtin_trap();
  for (const auto& [name, value] : answer.headers)
    if (value.find_first_of("\r\n") != std::string::npos) __builtin_trap();
  return 0;
}
