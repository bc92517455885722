// launch/requests.h -- how `tandem join` and `tandem leave` reach a run: by files in its folder, never by a port.
//
//   <run>/requests/<id>.json         what is asked, put there whole by a rename
//   <run>/requests/<id>.reply.json   the launcher's answer; the asker takes both away
// Whoever may write the run's folder may ask; nobody else can.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tandem {

struct Request {
  std::string id;
  nlohmann::json body;
};

// The launcher's side.
class RequestBox {
 public:
  // Throws IoError; ConfigError if something else than a folder stands in the place of requests/.
  explicit RequestBox(const std::filesystem::path& run_dir);
  ~RequestBox();
  RequestBox(const RequestBox&) = delete;
  RequestBox& operator=(const RequestBox&) = delete;
  int fd() const { return fd_; }  // readable when something came
  std::vector<Request> take();    // what is not JSON is answered with its error
  void reply(const std::string& id, const nlohmann::json& body);

 private:
  std::filesystem::path dir_;
  int folder_ = -1, fd_ = -1;  // the folder, held open: a link put in its place later leads nowhere; the watch on it
};

// The asker's side: waits for the answer. Throws Error (exit 6) if the run does not answer in time.
nlohmann::json ask_run(const std::filesystem::path& run_dir, const nlohmann::json& request, double timeout_seconds);

}  // namespace tandem
