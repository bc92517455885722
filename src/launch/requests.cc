#include "launch/requests.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/clock.h"
#include "base/errors.h"
#include "base/file_system.h"
#include "base/plain_file.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostRequest = 64 << 10;
constexpr std::string_view kReply = ".reply.json";

int watch_folder(const fs::path& dir) {
  const int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  if (fd < 0 || inotify_add_watch(fd, dir.c_str(), IN_MOVED_TO | IN_CLOSE_WRITE) < 0) {
    const int error = errno;
    if (fd >= 0) close(fd);
    throw IoError(fmt::format("cannot watch {}", dir.string()), error,
                  error == EACCES || error == EPERM ? "do it as the user who started the run, or ask them"
                  : error == EMFILE                 ? "raise fs.inotify.max_user_instances, or `ulimit -n`"
                  : error == ENOSPC                 ? "raise fs.inotify.max_user_watches"
                                                    : "check that the run's folder is there");
  }
  return fd;
}

// The folder itself, whatever a name may lead to later: a link in its place is refused, here and at each use.
int open_requests(const fs::path& dir) {
  refuse_misplaced(dir, true);
  const int fd = open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0)
    throw IoError(fmt::format("cannot open {}", dir.string()), errno, "check that the run folder may be written");
  return fd;
}

fs::path path_of_folder(int folder) { return fmt::format("/proc/self/fd/{}", folder); }

// Left by an earlier start. Folders are nobody's request: they stay, and are passed over.
void empty_folder(int folder) {
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(path_of_folder(folder), none))
    if (!fs::is_directory(entry.symlink_status(none))) unlinkat(folder, entry.path().filename().c_str(), 0);
}

std::string request_text(const nlohmann::json& body) {
  return body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void drain(int fd) {
  alignas(inotify_event) char events[4096];
  while (read(fd, events, sizeof events) > 0) {
  }
}

bool is_request(const std::string& name) {
  return name.ends_with(".json") && !name.ends_with(kReply) && !name.starts_with(".");
}

}  // namespace

RequestBox::RequestBox(const fs::path& run_dir) : dir_(run_dir / "requests") {
  refuse_misplaced(dir_, true);
  fs::create_directories(dir_);
  folder_ = open_requests(dir_);
  fchmod(folder_, S_IRWXU);  // whoever may write here may ask
  empty_folder(folder_);
  try {
    fd_ = watch_folder(path_of_folder(folder_));
  } catch (const IoError& error) {
    close(folder_);
    throw IoError(fmt::format("cannot watch {}", dir_.string()), error.error_number(), error.todo());
  }
}

RequestBox::~RequestBox() {
  if (fd_ >= 0) close(fd_);
  close(folder_);
  std::error_code none;
  fs::remove(dir_, none);  // if nobody asks just now
}

std::vector<Request> RequestBox::take() {
  drain(fd_);
  std::vector<Request> requests;
  std::error_code none;  // a folder that somebody took away is no reason to end a run
  for (const auto& entry : fs::directory_iterator(path_of_folder(folder_), none)) {
    const std::string name = entry.path().filename().string();
    if (!is_request(name) || !fs::is_regular_file(entry.symlink_status(none))) continue;
    const std::string id = name.substr(0, name.size() - 5);
    try {
      const FileBytes bytes = read_whole_file(FileSystem::real(), entry.path(), kMostRequest);
      requests.push_back({id, nlohmann::json::parse(bytes.text())});
    } catch (const std::exception& error) {
      reply(id, {{"error", "the request can't be read"}, {"why", error.what()}, {"do", "use `join` or `leave`"}});
    }
    fs::remove(entry.path(), none);
  }
  return requests;
}

void RequestBox::reply(const std::string& id, const nlohmann::json& body) {
  try {
    replace_file(FileSystem::real(), path_of_folder(folder_) / (id + std::string(kReply)), request_text(body));
  } catch (const Error&) {  // the asker gives up by itself; the run goes on
  }
}

nlohmann::json ask_run(const fs::path& run_dir, const nlohmann::json& request, double timeout_seconds) {
  const fs::path dir = run_dir / "requests";
  refuse_misplaced(dir, true);
  if (!fs::is_directory(dir))
    throw ConfigError(fmt::format("{} takes no requests", run_dir.string()), "no launcher is at work in it",
                      "look with `tandem runs show`; a run that has ended goes on with `tandem resume`");
  const int fd = watch_folder(dir);
  const std::string id = fmt::format("{}-{:.0f}", getpid(), monotonic_seconds() * 1e6);  // unique on this machine
  const fs::path answer = dir / (id + std::string(kReply));
  replace_file(FileSystem::real(), dir / (id + ".json"), request_text(request));
  const double end = monotonic_seconds() + timeout_seconds;
  while (!fs::exists(answer)) {
    const double left = end - monotonic_seconds();
    if (left <= 0) {
      close(fd);
      std::error_code none;
      fs::remove(dir / (id + ".json"), none);
      throw Error(ExitCode::kPeerLost, "the run does not answer",
                  fmt::format("its launcher took no notice for {:.0f} s: stopped, or overloaded", timeout_seconds),
                  "look at it with `tandem runs show`, and try again");
    }
    pollfd wait{fd, POLLIN, 0};
    poll(&wait, 1, static_cast<int>(std::min(left, 1.0) * 1000) + 1);
    drain(fd);
  }
  close(fd);
  const FileBytes bytes = read_whole_file(FileSystem::real(), answer, kMostRequest);
  fs::remove(answer);
  return nlohmann::json::parse(bytes.text());
}

}  // namespace tandem
