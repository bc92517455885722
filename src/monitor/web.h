// monitor/web.h -- `tandem monitor --web`: the page, its live stream, its history and /metrics, behind a token.
//
// Who may look: whoever has the token, which stands in the address printed at the start and then in a cookie that no
// script can read. A request must name this machine as its Host, so that a page of a stranger whose name was made to
// point here gets nothing. Paths are looked up in a fixed table; no file is ever opened for one.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "monitor/http_server.h"
#include "monitor/sample.h"
#include "monitor/sample_history.h"

namespace tandem {

// 32 hex digits from the kernel.
std::string new_token();
// The token that `file` holds, or a new one put there, for the owner only. Throws ConfigError if it can't be used.
std::string token_of_file(const std::string& file);

class MonitorSite {
 public:
  // A sample that is older than `stale_s` is not given out any more: the driver hangs. `interval_s`: when the page may
  // expect the next one.
  MonitorSite(std::string token, std::string host_name, bool loopback, History& history, double stale_s = 15,
              double interval_s = 1);
  // Another name that it is reached by: the one that it listens on.
  void also_called(std::string name);
  HttpResponse answer(const HttpRequest& request);
  void show(const MonitorSample& sample);  // what is answered from now on
  const std::string& newest_json() const { return json_; }

 private:
  bool host_is_ours(const std::string& header) const;
  bool may_look(const HttpRequest& request) const;
  HttpResponse page(bool set_cookie);
  HttpResponse newest(const char* type, const std::function<std::string()>& body) const;
  HttpResponse history(const HttpRequest& request);

  std::string token_, cookie_name_;
  std::vector<std::string> names_;
  bool loopback_;
  History& history_;
  double stale_s_, interval_s_, shown_at_ = -1;  // monotonic; -1: nothing yet
  MonitorSample sample_;
  std::string json_;
};

std::string history_json(const std::vector<HistorySeries>& series, int64_t seconds);

}  // namespace tandem
