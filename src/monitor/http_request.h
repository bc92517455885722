// monitor/http_request.h -- the head of an HTTP/1.1 request, read strictly. Pure: bytes in, a struct or a refusal out.
//
// The monitor serves a page and answers GET, nothing else: whoever sends something it does not know is refused.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace tandem {

struct HttpRequest {
  std::string method, path;                    // path: before '?', as it came, never decoded
  std::map<std::string, std::string> query;    // decoded; the first of equal names counts
  std::map<std::string, std::string> headers;  // names in small letters
  bool keep_alive = true;

  std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
  std::string cookie(std::string_view name) const;
};

inline constexpr size_t kLongestHead = 8192;
inline constexpr size_t kMostHeaders = 64;

struct HttpParse {
  enum class State { kMore, kDone, kBad };
  State state = State::kMore;
  size_t used = 0;      // bytes of the head, once done
  int status = 400;     // of a refusal
  std::string reason;   // of a refusal, in words
  HttpRequest request;  // once done
};

HttpParse parse_http_request(std::string_view bytes);

// Host without its port, in small letters; nothing if it is not a host.
std::optional<std::string> host_of_header(std::string_view host);
bool is_ip_literal(const std::string& host);
bool is_loopback_literal(const std::string& host);  // 127.0.0.0/8, ::1, however it is spelled

// In the same time for every content of equal length.
bool equal_secrets(std::string_view a, std::string_view b);

}  // namespace tandem
