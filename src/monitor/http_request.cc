#include "monitor/http_request.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cctype>

namespace tandem {
namespace {

HttpParse bad(int status, std::string reason) {
  HttpParse parse;
  parse.state = HttpParse::State::kBad;
  parse.status = status;
  parse.reason = std::move(reason);
  return parse;
}

bool is_token(std::string_view text) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](unsigned char c) {
    return std::isalnum(c) || kMarks.find(static_cast<char>(c)) != std::string_view::npos;
  });
}

std::string small(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

int hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && hex(text[i + 1]) >= 0 && hex(text[i + 2]) >= 0) {
      out += static_cast<char>(hex(text[i + 1]) * 16 + hex(text[i + 2]));
      i += 2;
    } else {
      out += text[i] == '+' ? ' ' : text[i];
    }
  }
  return out;
}

void read_query(std::string_view text, HttpRequest& request) {
  while (!text.empty()) {
    const std::string_view pair = text.substr(0, text.find('&'));
    text.remove_prefix(std::min(text.size(), pair.size() + 1));
    const size_t equals = pair.find('=');
    const std::string name = decoded(pair.substr(0, equals));
    if (!name.empty() && request.query.size() < 16)
      request.query.try_emplace(name, equals == std::string_view::npos ? "" : decoded(pair.substr(equals + 1)));
  }
}

}  // namespace

HttpParse parse_http_request(std::string_view bytes) {
  const size_t end = bytes.substr(0, kLongestHead).find("\r\n\r\n");
  if (end == std::string_view::npos) {
    if (bytes.size() >= kLongestHead) return bad(431, "the head of the request is too long");
    // Another protocol shows at once; waiting for its end would be waiting for a guest who does not speak.
    const std::string_view start = bytes.substr(0, 16);
    if (std::any_of(start.begin(), start.end(), [](unsigned char c) { return c < 0x20 && c != '\r' && c != '\n'; }))
      return bad(400, "this is not HTTP");
    return {};
  }
  HttpParse parse;
  parse.used = end + 4;
  std::string_view head = bytes.substr(0, end + 2);
  const std::string_view line = head.substr(0, head.find("\r\n"));
  head.remove_prefix(line.size() + 2);
  HttpRequest& request = parse.request;

  const size_t first = line.find(' '), last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) return bad(400, "the first line is no request");
  request.method = line.substr(0, first);
  const std::string_view target = line.substr(first + 1, last - first - 1), version = line.substr(last + 1);
  if (!is_token(request.method)) return bad(400, "the first line is no request");
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return bad(505, "only HTTP/1.1 is spoken here");
  request.keep_alive = version == "HTTP/1.1";
  if (!target.starts_with('/')) return bad(400, "the path must begin with '/'");
  if (std::any_of(target.begin(), target.end(), [](unsigned char c) { return c <= 0x20 || c >= 0x7F; }))
    return bad(400, "the path holds characters that must be encoded");
  request.path = target.substr(0, target.find('?'));
  if (request.path.size() < target.size()) read_query(target.substr(request.path.size() + 1), request);

  size_t count = 0;
  while (!head.empty()) {
    const std::string_view field = head.substr(0, head.find("\r\n"));
    head.remove_prefix(field.size() + 2);
    const size_t colon = field.find(':');
    if (colon == std::string_view::npos || !is_token(field.substr(0, colon))) return bad(400, "a header has no name");
    if (++count > kMostHeaders) return bad(431, "there are too many headers");
    const std::string name = small(field.substr(0, colon));
    const std::string_view value = trimmed(field.substr(colon + 1));
    if (std::any_of(value.begin(), value.end(), [](unsigned char c) { return (c < 0x20 && c != '\t') || c == 0x7F; }))
      return bad(400, "a header holds control characters");
    if (!request.headers.try_emplace(name, value).second) {
      if (name == "host" || name == "content-length") return bad(400, "a header that must stand once stands twice");
      request.headers[name] += (name == "cookie" ? "; " : ", ") + std::string(value);
    }
  }
  if (request.headers.contains("transfer-encoding")) return bad(411, "no body is expected here");
  if (const auto length = request.headers.find("content-length");
      length != request.headers.end() && length->second != "0")
    return bad(413, "no body is expected here");
  const std::string connection = small(request.header("connection"));
  if (connection.find("close") != std::string::npos) request.keep_alive = false;
  parse.state = HttpParse::State::kDone;
  return parse;
}

std::string HttpRequest::cookie(std::string_view name) const {
  const std::string all = header("cookie");
  std::string_view text = all;
  while (!text.empty()) {
    const std::string_view pair = text.substr(0, text.find(';'));
    text.remove_prefix(std::min(text.size(), pair.size() + 1));
    const size_t equals = pair.find('=');
    if (equals != std::string_view::npos && trimmed(pair.substr(0, equals)) == name)
      return std::string(trimmed(pair.substr(equals + 1)));
  }
  return "";
}

std::optional<std::string> host_of_header(std::string_view host) {
  if (host.empty() || host.size() > 255) return std::nullopt;
  std::string_view name = host, port;
  if (host.front() == '[') {
    const size_t end = host.find(']');
    if (end == std::string_view::npos) return std::nullopt;
    name = host.substr(1, end - 1);
    port = host.substr(end + 1);
  } else if (const size_t colon = host.find(':'); colon != std::string_view::npos) {
    name = host.substr(0, colon);
    port = host.substr(colon);
  }
  if (name.empty() || (!port.empty() && port.front() != ':')) return std::nullopt;
  if (!std::all_of(port.begin() + (port.empty() ? 0 : 1), port.end(), [](unsigned char c) { return std::isdigit(c); }))
    return std::nullopt;
  if (!std::all_of(name.begin(), name.end(),
                   [](unsigned char c) { return std::isalnum(c) || c == '.' || c == '-' || c == ':' || c == '_'; }))
    return std::nullopt;
  std::string out = small(name);
  if (out.ends_with('.')) out.pop_back();
  return out;
}

bool is_loopback_literal(const std::string& host) {
  in_addr four{};
  in6_addr six{};
  if (::inet_pton(AF_INET, host.c_str(), &four) == 1) return ntohl(four.s_addr) >> 24 == 127;
  if (::inet_pton(AF_INET6, host.c_str(), &six) != 1) return false;
  return IN6_IS_ADDR_LOOPBACK(&six) || (IN6_IS_ADDR_V4MAPPED(&six) && six.s6_addr[12] == 127);
}

bool is_ip_literal(const std::string& host) {
  in_addr four{};
  in6_addr six{};
  return ::inet_pton(AF_INET, host.c_str(), &four) == 1 || ::inet_pton(AF_INET6, host.c_str(), &six) == 1;
}

bool equal_secrets(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  const size_t length = std::min(a.size(), b.size());
  for (size_t i = 0; i < length; ++i) difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  volatile unsigned result = difference;
  return result == 0;
}

}  // namespace tandem
