#include "monitor/http_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/errors.h"

namespace tandem {
namespace {

constexpr double kDeafSeconds = 0.5;
constexpr size_t kLeaving = 32;  // guests beyond the limit: those who have their answer and read it

const char* status_text(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 303:
      return "See Other";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 411:
      return "Length Required";
    case 413:
      return "Content Too Large";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Error";
  }
}

bool is_loopback(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET)
    return (ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24) == 127;
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

}  // namespace

struct HttpServer::Guest {
  int fd = -1;
  std::string in, out;
  size_t sent = 0;
  double since = 0;  // it was last of use: a head that is awaited, a byte taken
  bool stream = false, closing = false, gone = false;
  bool ended = false;  // it says nothing more
  bool fresh = true;   // nobody has looked yet whether it says something
  ~Guest() {
    if (fd >= 0) ::close(fd);
  }
};

// Nothing is read from one who has asked more than was answered: what he sends waits in his socket.
bool HttpServer::hears(const Guest& guest) { return !guest.ended && guest.in.size() < 2 * kLongestHead; }

HttpServer::HttpServer(const std::string& host, int port, Handler handler, HttpLimits limits)
    : handler_(std::move(handler)), limits_(limits) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); code != 0)
    throw ConfigError(fmt::format("--host {} is no address of this machine", host), ::gai_strerror(code),
                      "give 127.0.0.1 (this machine only), 0.0.0.0 (every interface) or one of its addresses");
  sockaddr_storage address{};
  const socklen_t length = found->ai_addrlen;
  std::memcpy(&address, found->ai_addr, length);
  const int family = found->ai_family;
  ::freeaddrinfo(found);
  loopback_ = is_loopback(address);
  listener_ = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int on = 1;
  ::setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (listener_ < 0 || ::bind(listener_, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::listen(listener_, 64) != 0) {
    const int error = errno;
    if (listener_ >= 0) ::close(listener_);
    throw ConfigError(fmt::format("cannot listen on {} port {}", host, port), std::strerror(error),
                      error == EADDRINUSE ? "leave --port out: a free one is taken; or end what uses this one"
                      : error == EACCES   ? "take a port above 1023, or leave --port out"
                                          : "give another --host or --port");
  }
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  ::getsockname(listener_, reinterpret_cast<sockaddr*>(&bound), &size);
  port_ = ntohs(bound.ss_family == AF_INET ? reinterpret_cast<sockaddr_in&>(bound).sin_port
                                           : reinterpret_cast<sockaddr_in6&>(bound).sin6_port);
}

HttpServer::~HttpServer() { ::close(listener_); }

size_t HttpServer::streams() const {
  return static_cast<size_t>(
      std::count_if(guests_.begin(), guests_.end(), [](const auto& guest) { return guest->stream && !guest->gone; }));
}

void HttpServer::welcome(double now) {
  const auto full = [&] {
    return std::count_if(guests_.begin(), guests_.end(), [](const auto& one) { return !one->closing; }) >=
           static_cast<ptrdiff_t>(limits_.connections);
  };
  const auto unheard = [&] {
    return std::any_of(guests_.begin(), guests_.end(), [](const auto& one) { return one->fresh; });
  };
  for (int i = 0; i < 64; ++i) {      // those who are here have their turn, too
    if (full() && unheard()) return;  // who came just now is heard before it is said that he is silent
    const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      const bool no_room = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      if (!no_room || unheard()) return;
      if (make_room(true) || make_room(false)) continue;
      // Who waits at the door keeps the listener readable: without a pause this would be a loop at full speed.
      deaf_until_ = now + kDeafSeconds;
      return;
    }
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    auto guest = std::make_unique<Guest>();
    guest->fd = fd;
    guest->since = now;
    if (full()) make_room(false);
    // He stays until he has read it: a socket closed with a question in it takes the answer along.
    if (full())
      reply(*guest, nullptr,
            {503, "text/plain; charset=utf-8", "too many connections; try again in a moment\n", {}, false}, now);
    if (guests_.size() >= limits_.connections + kLeaving) make_room(true);
    if (guests_.size() < limits_.connections + kLeaving) guests_.push_back(std::move(guest));
  }
}

// Who only holds a place gives it up to who comes: strangers that connect and say nothing keep nobody out. `leaving`:
// one who has his answer and does not go.
bool HttpServer::make_room(bool leaving) {
  auto oldest = guests_.end();
  for (auto at = guests_.begin(); at != guests_.end(); ++at)
    if (!(*at)->stream && !(*at)->fresh && (*at)->out.empty() && (*at)->closing == leaving &&
        (oldest == guests_.end() || (*at)->since < (*oldest)->since))
      oldest = at;
  if (oldest == guests_.end()) return false;
  guests_.erase(oldest);
  return true;
}

void HttpServer::reply(Guest& guest, const HttpRequest* request, HttpResponse response, double now) {
  const bool head_only = request && request->method == "HEAD";
  guest.stream = response.stream && !head_only;
  guest.closing = !guest.stream && (!request || !request->keep_alive || response.status >= 400 || response.stream);
  std::string head = fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\n", response.status,
                                 status_text(response.status), response.type);
  if (!response.stream) head += fmt::format("Content-Length: {}\r\n", response.body.size());
  // A stream ends with its connection.
  head += fmt::format("Connection: {}\r\n", guest.closing || response.stream ? "close" : "keep-alive");
  // Nobody keeps it, frames it, guesses its type or learns where a link came from.
  head +=
      "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n"
      "Referrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n";
  for (const auto& [name, value] : response.headers) head += fmt::format("{}: {}\r\n", name, value);
  guest.out += head + "\r\n";
  if (!head_only) guest.out += response.body;
  guest.since = now;
  push(guest, now);
}

void HttpServer::answer(Guest& guest, const HttpRequest& request, double now) {
  if (request.method != "GET" && request.method != "HEAD") {
    reply(guest, nullptr,
          {405, "text/plain; charset=utf-8", "only GET is answered here\n", {{"Allow", "GET, HEAD"}}, false}, now);
    return;
  }
  reply(guest, &request, handler_(request), now);
}

void HttpServer::hear(Guest& guest, double now) {
  char buffer[4096];
  for (int i = 0; i < 8 && hears(guest); ++i) {  // the others wait, too
    const ssize_t got = ::recv(guest.fd, buffer, sizeof buffer, 0);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      guest.gone = true;
      return;
    }
    if (got == 0) {
      guest.ended = true;
      break;
    }
    if (!guest.stream && !guest.closing) guest.in.append(buffer, static_cast<size_t>(got));  // else it is dropped
  }
  // One request after the other: the next is read once the answer to this one is on its way.
  while (!guest.in.empty() && !guest.closing && !guest.stream && guest.out.empty() && !guest.gone) {
    HttpParse parse = parse_http_request(guest.in);
    if (parse.state == HttpParse::State::kMore) break;
    if (parse.state == HttpParse::State::kBad) {
      reply(guest, nullptr, {parse.status, "text/plain; charset=utf-8", parse.reason + "\n", {}, false}, now);
      break;
    }
    guest.in.erase(0, parse.used);
    answer(guest, parse.request, now);
  }
  if (guest.closing) guest.in.clear();
  if (guest.ended && guest.out.empty()) guest.gone = true;  // what it asked for was sent
}

void HttpServer::push(Guest& guest, double now) {
  while (guest.sent < guest.out.size()) {
    const ssize_t got = ::send(guest.fd, guest.out.data() + guest.sent, guest.out.size() - guest.sent, MSG_NOSIGNAL);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got <= 0) {
      guest.gone = true;
      return;
    }
    guest.sent += static_cast<size_t>(got);
    guest.since = now;
  }
  guest.out.clear();
  guest.sent = 0;
  if (guest.closing) ::shutdown(guest.fd, SHUT_WR);  // it reads the end, and closes
}

void HttpServer::send_event(std::string_view data) {
  const double now = monotonic_seconds();
  for (const auto& guest : guests_) {
    if (!guest->stream || guest->gone) continue;
    if (guest->out.size() - guest->sent > limits_.stream_backlog) {
      guest->gone = true;
      continue;
    }
    if (guest->sent > 0) guest->out.erase(0, std::exchange(guest->sent, 0));  // one who is always a little behind
    guest->out += fmt::format("data: {}\n\n", data);
    push(*guest, now);
  }
}

int HttpServer::serve_until(double monotonic, const std::vector<int>& others) {
  for (;;) {
    double now = monotonic_seconds();
    std::vector<pollfd> waits;
    for (const int fd : others) waits.push_back({fd, POLLIN, 0});
    const bool deaf = now < deaf_until_;
    waits.push_back({deaf ? -1 : listener_, POLLIN, 0});
    double wake = deaf ? std::min(monotonic, deaf_until_) : monotonic;
    for (const auto& guest : guests_) {
      const bool sending = guest->sent < guest->out.size();
      waits.push_back({guest->fd, static_cast<short>((hears(*guest) ? POLLIN : 0) | (sending ? POLLOUT : 0)), 0});
      if (!guest->stream || sending)
        wake =
            std::min(wake, guest->since + (sending || guest->closing ? limits_.stuck_seconds : limits_.head_seconds));
    }
    const double left = std::clamp(wake - now, 0.0, 3600.0);
    const int ready = ::poll(waits.data(), waits.size(), static_cast<int>(std::ceil(left * 1000)));
    now = monotonic_seconds();
    for (size_t i = 0; i < others.size(); ++i)
      if (ready > 0 && (waits[i].revents & POLLIN)) return static_cast<int>(i);
    for (size_t i = 0; i < guests_.size(); ++i) {
      Guest& guest = *guests_[i];
      const pollfd& wait = waits[others.size() + 1 + i];
      guest.fresh = false;
      if (ready > 0 && (wait.revents & (POLLERR | POLLHUP | POLLNVAL))) guest.gone = true;
      if (ready > 0 && !guest.gone && (wait.revents & POLLOUT)) push(guest, now);
      // What it asked before the last answer was on its way is here already.
      const bool asked = !guest.in.empty() && guest.out.empty();
      if (ready > 0 && !guest.gone && (wait.revents & (POLLIN | POLLOUT)) &&
          ((wait.revents & POLLIN) || asked || guest.ended))
        hear(guest, now);
      const bool sending = guest.sent < guest.out.size();
      if (sending || guest.closing) {
        if (now - guest.since >= limits_.stuck_seconds) guest.gone = true;
      } else if (!guest.stream && now - guest.since >= limits_.head_seconds) {
        guest.gone = true;
      }
    }
    std::erase_if(guests_, [](const auto& guest) { return guest->gone; });
    if (ready > 0 && (waits[others.size()].revents & POLLIN)) welcome(now);
    if (now >= monotonic) return -1;
  }
}

}  // namespace tandem
