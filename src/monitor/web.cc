#include "monitor/web.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/errors.h"
#include "base/sha256.h"
#include "monitor/formats.h"
#include "monitor/monitor_page.h"
#include "telemetry/human.h"

namespace tandem {
namespace {

constexpr size_t kTokenDigits = 32;

std::string random_hex(size_t digits) {
  std::string bytes(digits / 2, '\0');
  size_t got = 0;
  while (got < bytes.size()) {
    const ssize_t more = ::getrandom(bytes.data() + got, bytes.size() - got, 0);
    if (more < 0 && errno == EINTR) continue;
    if (more <= 0)
      throw Error(ExitCode::kFailed, "no random numbers", std::strerror(errno), "use a kernel with getrandom()");
    got += static_cast<size_t>(more);
  }
  std::string hex;
  for (const char c : bytes) hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return hex;
}

void replace(std::string& text, std::string_view name, std::string_view value) {
  for (size_t at = 0; (at = text.find(name, at)) != std::string::npos; at += value.size())
    text.replace(at, name.size(), value);
}

HttpResponse refusal(int status, const std::string& title, const std::string& words) {
  HttpResponse response;
  response.status = status;
  response.type = "text/html; charset=utf-8";
  response.body = fmt::format(
      "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">"
      "<title>tandem monitor</title><body style=\"font:15px/1.5 system-ui,sans-serif;max-width:38em;margin:3em auto;"
      "padding:0 1em\"><h1 style=\"font-size:20px\">{}</h1><p>{}</p></body></html>\n",
      title, words);
  response.headers = {{"Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'"}};
  return response;
}

void append_number(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::general, 5);
  out.append(buffer, end);
}

}  // namespace

std::string new_token() { return random_hex(kTokenDigits); }

std::string token_of_file(const std::string& file) {
  const auto bad = [&](const std::string& why, const std::string& todo) {
    return ConfigError(fmt::format("--token-file {} cannot be used", file), why, todo);
  };
  for (int attempt = 0; attempt < 2; ++attempt) {
    const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe would hold us
    if (fd >= 0) {
      struct stat info {};
      char buffer[512] = {};
      const ssize_t got = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) ? ::read(fd, buffer, sizeof buffer - 1) : -1;
      ::close(fd);
      if (got < 0) throw bad("it is no file that can be read", "name another, or remove it: a new one is made");
      if (info.st_mode & 077)
        throw bad("others than its owner may read it, so it is no secret", fmt::format("run `chmod 600 {}`", file));
      std::string token(buffer, static_cast<size_t>(got));
      while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) token.pop_back();
      const bool plain = std::all_of(token.begin(), token.end(),
                                     [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_'; });
      if (token.size() < 16 || token.size() > 256 || !plain)
        throw bad("a token is 16 to 256 letters, digits, - and _", "remove the file: a new one is made");
      return token;
    }
    if (errno != ENOENT) throw bad(std::strerror(errno), "name a file that you may read");
    // Made beside it and linked: of two monitors that begin at once both have the token of the first, and a full disk
    // leaves no half of one.
    const std::string draft = fmt::format("{}.{}", file, random_hex(8)), line = new_token() + "\n";
    const int made = ::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (made < 0) throw bad(std::strerror(errno), "name a file in a folder that you may write");
    const bool written = ::write(made, line.data(), line.size()) == static_cast<ssize_t>(line.size());
    const bool closed = ::close(made) == 0;
    const bool linked = written && closed && ::link(draft.c_str(), file.c_str()) == 0;
    const int error = errno;
    ::unlink(draft.c_str());
    if (!written || !closed) throw bad("it could not be written", "look whether the disk is full");
    if (!linked && error != EEXIST) throw bad(std::strerror(error), "name a file in a folder that you may write");
  }
  throw bad("it comes and goes", "name a file that nobody else removes");
}

MonitorSite::MonitorSite(std::string token, std::string host_name, bool loopback, History& history, double stale_s,
                         double interval_s)
    : token_(std::move(token)), loopback_(loopback), history_(history), stale_s_(stale_s), interval_s_(interval_s) {
  show(MonitorSample{});
  shown_at_ = -1;
  // Cookies know no ports: each monitor has its own name, so that two behind one address do not undo each other.
  Sha256 hash;
  hash.update("cookie " + token_);
  cookie_name_ = "tandem-" + hash.hex().substr(0, 12);
  also_called(std::move(host_name));
}

void MonitorSite::also_called(std::string name) {
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  names_.push_back(std::move(name));
}

void MonitorSite::show(const MonitorSample& sample) {
  sample_ = sample;
  shown_at_ = monotonic_seconds();
  nlohmann::json json = to_json(sample);
  json["schema"] = 1;
  json["interval_s"] = interval_s_;
  if (!history_.trouble().empty()) json["history_trouble"] = history_.trouble();
  json_ = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Forwarded by ssh, it is reached as localhost on any port.
bool MonitorSite::host_is_ours(const std::string& header) const {
  const auto host = host_of_header(header);
  if (!host) return false;
  if (*host == "localhost" || is_loopback_literal(*host)) return true;
  // An address can't be made to point elsewhere; a name can.
  return !loopback_ && (is_ip_literal(*host) || std::find(names_.begin(), names_.end(), *host) != names_.end());
}

bool MonitorSite::may_look(const HttpRequest& request) const {
  if (equal_secrets(request.cookie(cookie_name_), token_)) return true;
  const auto given = request.query.find("token");
  if (given != request.query.end() && equal_secrets(given->second, token_)) return true;
  const std::string bearer = request.header("authorization");
  return bearer.starts_with("Bearer ") && equal_secrets(std::string_view(bearer).substr(7), token_);
}

HttpResponse MonitorSite::answer(const HttpRequest& request) {
  if (!host_is_ours(request.header("host")))
    return refusal(403, "This name is not ours",
                   "The request came for another name than this machine's. Open the address that "
                   "<code>tandem monitor --web</code> printed.");
  using Act = HttpResponse (*)(MonitorSite&, const HttpRequest&);
  static const std::map<std::string, Act, std::less<>> table = {
      {"/", [](MonitorSite& site, const HttpRequest& r) { return site.page(r.query.contains("token")); }},
      {"/live",
       [](MonitorSite& site, const HttpRequest&) {
         return HttpResponse{200, "text/event-stream", "retry: 2000\n\ndata: " + site.json_ + "\n\n", {}, true};
       }},
      {"/history", [](MonitorSite& site, const HttpRequest& r) { return site.history(r); }},
      {"/sample.json",
       [](MonitorSite& site, const HttpRequest&) {
         return site.newest("application/json", [&] { return site.json_ + "\n"; });
       }},
      {"/metrics",
       [](MonitorSite& site, const HttpRequest&) {
         return site.newest("text/plain; version=0.0.4; charset=utf-8", [&] { return prometheus_text(site.sample_); });
       }},
  };
  const auto found = table.find(request.path);
  if (!may_look(request)) {
    HttpResponse response =
        refusal(401, "The token is missing or wrong",
                "The address that <code>tandem monitor --web</code> printed when it started ends in "
                "<code>?token=...</code>: open that one. It is in the terminal where the monitor runs"
                " (or in the file named by <code>--token-file</code>). Programs send it as "
                "<code>Authorization: Bearer TOKEN</code>.");
    response.headers.emplace_back("WWW-Authenticate", "Bearer realm=\"tandem monitor\"");
    return response;
  }
  if (found == table.end())
    return refusal(404, "There is no such page",
                   "There are <code>/</code>, <code>/metrics</code> and <code>/sample.json</code>.");
  return found->second(*this, request);
}

// Old figures that look like new ones would hide that the driver hangs.
HttpResponse MonitorSite::newest(const char* type, const std::function<std::string()>& body) const {
  if (shown_at_ < 0) return {503, "text/plain; charset=utf-8", "nothing was measured yet\n", {}, false};
  const double age = monotonic_seconds() - shown_at_;
  if (age > stale_s_)
    return {
        503, "text/plain; charset=utf-8", fmt::format("the driver has not answered for {:.0f} s\n", age), {}, false};
  return {200, type, body(), {}, false};
}

HttpResponse MonitorSite::page(bool set_cookie) {
  const std::string nonce = random_hex(kTokenDigits);
  std::string first = json_;
  replace(first, "<", "\\u003c");  // inside a script element
  std::string html = kMonitorHtml;
  replace(html, "{NONCE}", nonce);
  replace(html, "{CSS}", kMonitorCss);
  replace(html, "{JS}", kMonitorJs);
  const size_t at = html.find("{FIRST}");
  if (at != std::string::npos) html.replace(at, 7, first);
  HttpResponse response{200, "text/html; charset=utf-8", std::move(html), {}, false};
  response.headers = {
      {"Content-Security-Policy",
       fmt::format("default-src 'none'; script-src 'nonce-{0}'; style-src 'nonce-{0}'; style-src-attr 'unsafe-inline';"
                   " img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
                   nonce)}};
  if (set_cookie)
    response.headers.emplace_back("Set-Cookie",
                                  fmt::format("{}={}; Path=/; HttpOnly; SameSite=Strict", cookie_name_, token_));
  return response;
}

HttpResponse MonitorSite::history(const HttpRequest& request) {
  int64_t seconds = 600;
  if (const auto given = request.query.find("seconds"); given != request.query.end()) {
    const std::string& text = given->second;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
    if (error != std::errc() || end != text.data() + text.size() || seconds < 1 || seconds > kHistoryTiers.back().kept)
      return {400,
              "text/plain; charset=utf-8",
              fmt::format("seconds must be 1 to {}\n", kHistoryTiers.back().kept),
              {},
              false};
  }
  const double now = sample_.time > 0 ? sample_.time : unix_now();
  return {200, "application/json", history_json(history_.read(now, seconds), seconds), {}, false};
}

std::string history_json(const std::vector<HistorySeries>& series, int64_t seconds) {
  std::string out = fmt::format("{{\"schema\":1,\"seconds\":{},\"series\":[", seconds);
  for (const HistorySeries& one : series) {
    out += (&one == &series.front() ? "{\"source\":" : ",{\"source\":") +
           nlohmann::json(one.source).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + ",\"t\":[";
    for (size_t i = 0; i < one.times.size(); ++i) {
      if (i) out += ',';
      out += std::to_string(one.times[i]);
    }
    out += "],\"v\":[";
    for (size_t k = 0; k < one.values.size(); ++k) {
      out += k ? ",[" : "[";
      for (size_t i = 0; i < one.values[k].size(); ++i) {
        if (i) out += ',';
        append_number(out, one.values[k][i]);
      }
      out += ']';
    }
    out += "]}";
  }
  return out + "]}";
}

}  // namespace tandem
