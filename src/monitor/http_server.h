// monitor/http_server.h -- a small HTTP server for one thread: GET and HEAD, and streams of events.
//
// Nobody can hold it up: a head must be there within seconds, what is sent must be taken within seconds, there is a
// limit on guests (who is silent gives way to who comes), on the bytes of a head, and on what waits for a slow one.
// Where the process has no descriptor left, it waits for one instead of trying without end.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "monitor/http_request.h"

namespace tandem {

struct HttpResponse {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
  bool stream = false;  // an event stream: the body begins it, send_event() goes on
};

struct HttpLimits {
  size_t connections = 64;
  double head_seconds = 10;                 // from the first look at a connection to the end of its request's head
  double stuck_seconds = 10;                // without a byte taken
  size_t stream_backlog = size_t{2} << 20;  // bytes that wait for a reader of a stream
};

class HttpServer {
 public:
  using Handler = std::function<HttpResponse(const HttpRequest&)>;
  // Listens at once. Throws ConfigError if the address is no address or the port is taken.
  HttpServer(const std::string& host, int port, Handler handler, HttpLimits limits = {});
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const { return port_; }
  bool loopback() const { return loopback_; }  // reached from this machine only
  size_t streams() const;                      // how many listen
  // Serves until `monotonic`, or until one of `others` (descriptors) is readable: then its index, else -1.
  int serve_until(double monotonic, const std::vector<int>& others = {});
  void send_event(std::string_view data);  // one line of data to all streams

 private:
  struct Guest;
  static bool hears(const Guest& guest);
  void welcome(double now);
  bool make_room(bool leaving);
  void hear(Guest& guest, double now);
  void answer(Guest& guest, const HttpRequest& request, double now);
  void reply(Guest& guest, const HttpRequest* request, HttpResponse response, double now);
  void push(Guest& guest, double now);

  Handler handler_;
  HttpLimits limits_;
  int listener_ = -1, port_ = 0;
  bool loopback_ = true;
  double deaf_until_ = 0;  // monotonic: nobody is let in before
  std::vector<std::unique_ptr<Guest>> guests_;
};

}  // namespace tandem
