#include "launch/rendezvous.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <set>

#include "base/clock.h"
#include "base/errors.h"
#include "base/printable.h"
#include "fleet/messages.h"
#include "launch/secret.h"

namespace tandem {
namespace {

constexpr double kGuestSeconds = 3, kAnswerSeconds = 2, kTalkAfterSeconds = 5;
constexpr size_t kMostGuests = 64, kMostRefused = 5;

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

ConfigError refusal_from(const nlohmann::json& words) { return ConfigError(words.at(0), words.at(1), words.at(2)); }

// Of a worker's identity, enough to tell two apart.
std::string short_of(const std::string& identity) { return identity.substr(identity.find('/') + 1).substr(0, 12); }

// Waits for one frame of a link that was just made.
std::optional<Frame> first_frame(Link& link, double seconds) {
  for (const double end = monotonic_seconds() + seconds; monotonic_seconds() < end;) {
    if (auto frame = link.next()) return frame;
    if (link.broken()) return std::nullopt;
    pollfd wait{link.poll_fd(), POLLIN, 0};
    poll(&wait, 1, 100);
    link.pump();
  }
  return std::nullopt;
}

}  // namespace

double join_seconds(const Variables& variable) {
  const char* text = variable("TANDEM_JOIN_SECONDS");
  return text && std::atof(text) > 0 ? std::atof(text) : 60;
}

std::string mesh_secret_of(const std::string& secret, const std::string& job, const std::string& nonce) {
  return keyed_digest(secret, {"tandem mesh of workers", job, nonce});
}

// ---- rank 0 ----

// Somebody who connected. First it proves itself, then it says who it is.
struct Gathering::Guest {
  Guest(int socket, const Credentials& credentials, std::string from)
      : fd(socket),
        greeting(credentials, random_bytes(32)),
        address(std::move(from)),
        until(monotonic_seconds() + kGuestSeconds) {}
  ~Guest() {
    if (fd >= 0) close(fd);
  }
  int poll_fd() const { return link ? link->poll_fd() : fd; }
  int fd;
  Greeting greeting;
  std::string address, bytes;
  double until;
  std::unique_ptr<Link> link;  // once it has proved itself
};

Gathering::Gathering(const RankInfo& info, std::string secret, Build build)
    : info_(info),
      address_(resolve_address(info.address, "MASTER_ADDR")),
      build_(std::move(build)),
      credentials_{std::move(secret), info.job, info.size} {
  hosts_[0] = host_name();
  listen_somewhere();
}

Gathering::~Gathering() { close_listener(); }

void Gathering::close_listener() {
  guests_.clear();
  if (listener_ >= 0) close(listener_);
  listener_ = -1;
}

void Gathering::listen_somewhere() {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST;
  getaddrinfo(address_.c_str(), nullptr, &hints, &found);
  sockaddr_storage address{};
  const socklen_t length = found->ai_addrlen;
  std::copy_n(reinterpret_cast<const char*>(found->ai_addr), length, reinterpret_cast<char*>(&address));
  freeaddrinfo(found);
  std::vector<int> taken;
  for (port_ = info_.first_port; port_ < info_.first_port + RankInfo::kPorts && port_ < 65536; ++port_) {
    listener_ = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int on = 1;
    setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    (address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                   : reinterpret_cast<sockaddr_in&>(address).sin_port) =
        htons(static_cast<uint16_t>(port_));
    const bool bound =
        bind(listener_, reinterpret_cast<const sockaddr*>(&address), length) == 0 && listen(listener_, 128) == 0;
    const int error = errno;
    if (bound) {
      for (const int port : taken) check_alone(port);
      return;
    }
    close(listener_);
    listener_ = -1;
    if (error == EADDRNOTAVAIL)
      throw ConfigError(fmt::format("MASTER_ADDR {} is not an address of this machine", info_.address),
                        "rank 0 listens there, and this is rank 0",
                        "set it to an address of this machine that the others can reach (`ip address` lists them)");
    if (error == EACCES)
      throw ConfigError(fmt::format("port {} may not be used", port_), "ports below 1024 belong to the system",
                        "set MASTER_PORT to a number from 1024 to 65000");
    taken.push_back(port_);
  }
  throw ConfigError(fmt::format("no port from {} to {} is free on {}", info_.first_port,
                                info_.first_port + RankInfo::kPorts - 1, address_),
                    "other programs listen on all of them",
                    "set MASTER_PORT (or TANDEM_PORT, the same on all ranks) to another number");
}

// A port before ours was taken: by another program, most likely, but a second rank 0 must not split the job.
void Gathering::check_alone(int port) const {
  const Attempt attempt = call(address_, port, credentials_, 0, kAnswerSeconds);
  if (attempt.outcome != Attempt::Outcome::kProved) return;
  Link(*attempt.fd, attempt.keys, false).close_gently(0.5);
  throw ConfigError("rank 0 of this job is there already", fmt::format("it listens on {} port {}", address_, port),
                    "give every process a RANK of its own; for a second job set another MASTER_PORT");
}

void Gathering::take_guests() {
  while (true) {
    sockaddr_storage from{};
    socklen_t length = sizeof from;
    const int fd = accept4(listener_, reinterpret_cast<sockaddr*>(&from), &length, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    char text[NI_MAXHOST] = "?";
    getnameinfo(reinterpret_cast<const sockaddr*>(&from), length, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
    if (guests_.size() >= kMostGuests) guests_.erase(guests_.begin());  // the one that has been silent for longest
    guests_.push_back(std::make_unique<Guest>(fd, credentials_, text));
  }
}

// False: it is done with.
bool Gathering::hear(Guest& guest) {
  if (guest.link) {
    guest.link->pump();
    if (auto frame = guest.link->next()) {
      introduced(guest, frame->head);
      return false;
    }
    return !guest.link->broken();
  }
  while (const size_t wanted = guest.greeting.wanted()) {
    char bytes[Greeting::kHelloBytes];
    const ssize_t got = recv(guest.fd, bytes, wanted - guest.bytes.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (got <= 0) return false;
    guest.bytes.append(bytes, static_cast<size_t>(got));
    if (guest.bytes.size() < wanted) continue;
    const std::string answer = guest.greeting.heard(std::exchange(guest.bytes, ""));
    if (!answer.empty() && send(guest.fd, answer.data(), answer.size(), MSG_NOSIGNAL) < 0) return false;
    if (guest.greeting.state() == Greeting::State::kRefused) {
      if (guest.greeting.same_job())
        refuse(fmt::format("{} came as rank {}, but {}", guest.address, guest.greeting.rank(), guest.greeting.why()),
               "give all ranks the same secret (TANDEM_SECRET_FILE, or a copy of ~/.config/tandem/secret)");
      return false;
    }
  }
  guest.link = std::make_unique<Link>(std::exchange(guest.fd, -1), guest.greeting.keys(), true);
  guest.until = monotonic_seconds() + kGuestSeconds;
  return hear(guest);
}

// It is ours, and tells who it is.
void Gathering::introduced(Guest& guest, const nlohmann::json& words) {
  const int rank = guest.greeting.rank();
  nlohmann::json no;
  const std::string version = words.value("version", "?"), host = words.value("host", "?");
  if (version != build_.version || words.value("protocol", 0) != kProtocolVersion)
    no = {fmt::format("rank {} is of version {}, rank 0 of version {}", rank, version, build_.version),
          "different versions may compute different bits", "install the same program on all machines"};
  else if (!WorkerProgram::may_meet(words.value("worker", ""), build_.identity()))
    no = {fmt::format("the worker of rank {} is another build of version {} than that of rank 0", rank, version),
          fmt::format("the files tandem-worker differ ({} and {}), so may the bits",
                      short_of(words.value("worker", "")), short_of(build_.identity())),
          "copy the program of rank 0's machine to all others"};
  else if (rank == 0 || rank >= info_.size)
    no = {fmt::format("there can be no second rank {}", rank), fmt::format("{} has it", hosts_.at(0)),
          "give every process a RANK of its own"};
  else if (links_.contains(rank))
    no = {fmt::format("rank {} is there already", rank), fmt::format("a process on {} came first", hosts_.at(rank)),
          "give every process a RANK of its own; for a second job set another MASTER_PORT"};
  if (!no.is_null()) {
    refuse(fmt::format("{} on {}: {}", guest.address, host, no.at(0).get<std::string>()), no.at(2));
    guest.link->send({{"refused", no}});
    guest.link->close_gently(1);
    return;
  }
  guest.link->send({{"welcome", rank}});
  hosts_[rank] = host;
  links_[rank] = std::move(guest.link);
}

// Reported at once, and once: whoever waits for that rank need not wait to learn why it does not come.
void Gathering::refuse(const std::string& words, const std::string& todo) {
  if (refused_.size() >= kMostRefused || !refused_.emplace(words, todo).second || quiet_) return;
  fmt::print(stderr, "warning: refused: {}; {}\n", printable(words), todo);
}

std::string Gathering::missing() const {
  std::vector<int> ranks;
  for (int rank = 1; rank < info_.size; ++rank)
    if (!links_.contains(rank)) ranks.push_back(rank);
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

// One turn of waiting for guests.
void Gathering::serve(double seconds) {
  std::vector<pollfd> waits{{listener_, POLLIN, 0}};
  for (const auto& guest : guests_) waits.push_back({guest->poll_fd(), POLLIN, 0});
  poll(waits.data(), waits.size(), static_cast<int>(std::clamp(seconds, 0.0, 0.2) * 1000) + 1);
  take_guests();
  const double now = monotonic_seconds();
  std::erase_if(guests_, [&](const auto& guest) { return !hear(*guest) || now > guest->until; });
}

void Gathering::gather(double seconds, bool quiet) {
  const double begin = monotonic_seconds();
  bool said = false;
  quiet_ = quiet;
  while (links_.size() + 1 < static_cast<size_t>(info_.size)) {
    const double now = monotonic_seconds();
    if (now - begin > seconds) {
      std::set<std::string> why, todo;
      for (const auto& [words, remedy] : refused_) {
        why.insert(words);
        todo.insert(remedy);
      }
      if (why.empty()) {
        why.insert(fmt::format("rank 0 waited on {} port {} (started by {})", address_, port_, info_.by));
        todo.insert(
            "start all ranks within that time (TANDEM_JOIN_SECONDS), with the same MASTER_ADDR and MASTER_PORT; a "
            "firewall must let them reach rank 0; see docs/launchers.md");
      }
      throw ConfigError(fmt::format("{} did not come within {:.0f} s", missing(), seconds),
                        fmt::format("{}", fmt::join(why, "; ")), fmt::format("{}", fmt::join(todo, "; ")));
    }
    if (!quiet && !said && now - begin > kTalkAfterSeconds) {
      said = true;
      fmt::print(stderr, "waiting for {} on {} port {}\n", missing(), address_, port_);
    }
    serve(begin + seconds - now);
    for (const auto& [rank, link] : links_) {
      link->pump();
      if (link->broken())
        throw Error(ExitCode::kPeerLost, fmt::format("rank {} on {} is gone again", rank, hosts_.at(rank)),
                    link->why_broken(), "see what it said; start all ranks again");
    }
  }
  close_listener();
}

void Gathering::dismiss(int code) {
  if (listener_ >= 0) {
    try {
      for (const double end = monotonic_seconds() + 3;
           links_.size() + 1 < static_cast<size_t>(info_.size) && monotonic_seconds() < end;)
        serve(end - monotonic_seconds());
    } catch (const std::exception&) {  // the end is on its way already
    }
    close_listener();
  }
  for (const auto& [rank, link] : links_) link->send({{"exit", code}});
  for (const auto& [rank, link] : links_) link->close_gently(5);
  links_.clear();
}

std::string Gathering::describe() const {
  std::vector<std::string> machines;
  for (const auto& [rank, host] : hosts_)
    if (std::find(machines.begin(), machines.end(), host) == machines.end()) machines.push_back(host);
  return fmt::format("{} by {} on {}", info_.size, info_.by, fmt::join(machines, ", "));
}

std::string Gathering::mesh_secret(const std::string& nonce) const {
  return mesh_secret_of(credentials_.secret, info_.job, nonce);
}

// ---- the others ----

std::unique_ptr<Link> join_rank_zero(const RankInfo& info, const std::string& secret, const Build& build,
                                     double seconds) {
  const Credentials credentials{secret, info.job, info.size};
  const std::string address = resolve_address(info.address, "MASTER_ADDR");
  const double end = monotonic_seconds() + seconds;
  int unproved_rounds = 0;
  std::string found = "nobody listens there";
  while (true) {
    bool unproved = false;
    for (int port = info.first_port; port < info.first_port + RankInfo::kPorts && port < 65536; ++port) {
      const Attempt attempt = call(address, port, credentials, info.rank, kAnswerSeconds);
      if (attempt.outcome == Attempt::Outcome::kWrongSecret) unproved = true;
      if (attempt.outcome == Attempt::Outcome::kStranger || attempt.outcome == Attempt::Outcome::kOtherJob)
        found = fmt::format("on port {} somebody listens, but {}", port, attempt.why);
      if (attempt.outcome != Attempt::Outcome::kProved) continue;
      auto link = std::make_unique<Link>(*attempt.fd, attempt.keys, false);
      link->send({{"version", build.version},
                  {"worker", build.identity()},
                  {"protocol", kProtocolVersion},
                  {"host", host_name()},
                  {"pid", getpid()}});
      const auto answer = first_frame(*link, kAnswerSeconds + seconds);
      if (answer && answer->head.contains("refused")) throw refusal_from(answer->head.at("refused"));
      if (answer && answer->head.contains("welcome")) return link;
    }
    unproved_rounds = unproved ? unproved_rounds + 1 : 0;
    // A stranger may stand on one port and rank 0 come up on another a moment later; but not for ever.
    if (unproved_rounds >= 6)
      throw ConfigError(fmt::format("rank {} could not prove itself to rank 0 at {}", info.rank, address),
                        "the two do not have the same secret",
                        "copy ~/.config/tandem/secret from rank 0's machine to this one, or give both the same "
                        "TANDEM_SECRET_FILE (or TANDEM_SECRET)");
    if (monotonic_seconds() > end)
      throw ConfigError(fmt::format("rank {} found no rank 0 at {} (ports {} to {}) within {:.0f} s", info.rank,
                                    address, info.first_port, info.first_port + RankInfo::kPorts - 1, seconds),
                        found,
                        "start rank 0 too, with the same MASTER_ADDR, MASTER_PORT and WORLD_SIZE; a firewall must let "
                        "this machine reach it; see docs/launchers.md");
    const timespec moment{0, 250'000'000};
    nanosleep(&moment, nullptr);
  }
}

}  // namespace tandem
