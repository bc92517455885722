#include "reduce/gloo_mesh.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gloo/context.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <atomic>

#include "reduce/gloo_combine.h"
#include "reduce/mesh_trial.h"

namespace tandem {
namespace {

using namespace trial;

struct Reports {
  struct Report {
    std::atomic<bool> formed;
    char error[300];
  } of[8];
};

void try_mesh(const MeshOptions& options, KeyValueStore& store, Reports::Report& report) {
  try {
    const auto context = connect_mesh(options, store);
    report.formed = true;
  } catch (const Error& e) {
    std::snprintf(report.error, sizeof report.error, "%s: %s", e.what(), e.why().c_str());
  }
}

TEST(Mesh, OneMemberNeedsNobody) {
  SharedStore store;
  const pid_t child = start([&] { connect_mesh(loopback(0, 1), store); });
  EXPECT_EQ(end_of(child), 0);
}

TEST(Mesh, WhoDoesNotKnowTheSecretIsRefusedByAll) {
  SharedStore store;
  const Shared<Reports> reports;
  std::vector<pid_t> children;
  for (int me = 0; me < 3; ++me) {
    children.push_back(start([&, me] {
      MeshOptions options = loopback(me, 3, 600);
      if (me == 2) options.secret = "a guess";
      try_mesh(options, store, reports->of[me]);
    }));
  }
  for (pid_t child : children) EXPECT_EQ(end_of(child), 0);
  for (int me = 0; me < 3; ++me) EXPECT_FALSE(reports->of[me].formed) << me;
  EXPECT_NE(std::string(reports->of[0].error).find("rank 2: it does not know"), std::string::npos)
      << reports->of[0].error;
}

TEST(Mesh, ADifferentNameOrSizeIsAnotherMesh) {
  SharedStore store;
  const Shared<Reports> reports;
  struct Renaming : KeyValueStore {  // so that they find each other all the same
    explicit Renaming(KeyValueStore& b) : store(b) {}
    void set(const std::string& key, const std::string& bytes) override { store.set(key.substr(key.find('/')), bytes); }
    std::string get(const std::string& key, double timeout) override {
      return store.get(key.substr(key.find('/')), timeout);
    }
    KeyValueStore& store;
  } renaming(store);
  std::vector<pid_t> children;
  for (int me = 0; me < 2; ++me) {
    children.push_back(start([&, me] {
      MeshOptions options = loopback(me, 2, 600);
      if (me == 1) options.name = "the attempt before";
      try_mesh(options, renaming, reports->of[me]);
    }));
  }
  for (pid_t child : children) EXPECT_EQ(end_of(child), 0);
  for (int me = 0; me < 2; ++me) EXPECT_FALSE(reports->of[me].formed) << me;
}

TEST(Mesh, AMemberThatNeverComesIsNamed) {
  SharedStore store;
  const Shared<Reports> reports;
  const pid_t child = start([&] { try_mesh(loopback(0, 2, 0.3), store, reports->of[0]); });
  EXPECT_EQ(end_of(child), 0);
  EXPECT_NE(std::string(reports->of[0].error).find("1-0"), std::string::npos) << reports->of[0].error;
}

TEST(Mesh, AnAddressThatIsNotOursIsRefused) {
  SharedStore store;
  for (const char* address : {"", "192.0.2.1", "no-such-interface0"}) {
    const pid_t child = start([&] {
      MeshOptions options = loopback(0, 2, 1);
      options.interface_or_address = address;
      try {
        connect_mesh(options, store);
      } catch (const ConfigError&) {
        return;
      }
      throw std::runtime_error("it was accepted");
    });
    EXPECT_EQ(end_of(child), 0) << "'" << address << "'";
  }
}

TEST(Mesh, AnInterfaceCanBeNamed) {
  SharedStore store;
  std::vector<pid_t> children;
  for (int me = 0; me < 2; ++me) {
    children.push_back(start([&, me] {
      MeshOptions options = loopback(me, 2);
      options.interface_or_address = "lo";
      connect_mesh(options, store);
    }));
  }
  for (pid_t child : children) EXPECT_EQ(end_of(child), 0);
}

// ---- strangers ----

sockaddr_in address_on(const std::string& entry) {  // as it is in the store: behind the salt
  sockaddr_in address{};
  std::memcpy(&address, entry.data() + 8, sizeof address);
  return address;
}

int connect_to(const sockaddr_in& address) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

// A store that lets a stranger in first: a member's address is shown to the others when the stranger has connected.
struct StrangersStore : KeyValueStore {
  StrangersStore(KeyValueStore& b, std::string t, bool h) : store(b), talk(std::move(t)), hangs_up(h) {}
  ~StrangersStore() override {
    for (int fd : fds) close(fd);
  }
  void set(const std::string& key, const std::string& bytes) override {
    const int fd = connect_to(address_on(bytes));
    if (fd >= 0 && !talk.empty()) (void)!write(fd, talk.data(), talk.size());
    if (fd >= 0 && hangs_up)
      close(fd);
    else if (fd >= 0)
      fds.push_back(fd);
    store.set(key, bytes);
  }
  std::string get(const std::string& key, double timeout) override { return store.get(key, timeout); }
  size_t bytes_heard() const {
    size_t heard = 0;
    char buffer[4096];
    for (int fd : fds)
      for (ssize_t n; (n = recv(fd, buffer, sizeof buffer, MSG_DONTWAIT)) > 0;) heard += static_cast<size_t>(n);
    return heard;
  }
  KeyValueStore& store;
  std::string talk;
  bool hangs_up;
  std::vector<int> fds;
};

// How Gloo frames a message.
std::string preamble(uint64_t opcode, uint64_t slot, uint64_t length) {
  const uint64_t words[6] = {48 + length, opcode, slot, 0, length, 0};
  return {reinterpret_cast<const char*>(words), sizeof words};
}

struct Ends {
  int code[3];
  bool formed[3];
};

// A stranger is the first to come to both ports of rank 0.
Ends mesh_with_stranger(const std::string& talk, bool hangs_up, const std::string& what) {
  SharedStore store;
  const Shared<Reports> reports;
  std::vector<pid_t> children;
  for (int me = 0; me < 3; ++me) {
    children.push_back(start([&, me] {
      StrangersStore strangers(store, talk, hangs_up);
      try_mesh(loopback(me, 3, 2), me == 0 ? static_cast<KeyValueStore&>(strangers) : store, reports->of[me]);
      // Two connections, each at most: ready to send and receive, a random number, ready to send and receive a proof.
      if (!reports->of[me].formed && strangers.bytes_heard() > 2 * (5 * 48 + 2 * 32))
        throw std::runtime_error("the stranger heard more than numbers");
    }));
  }
  Ends ends;
  for (int me = 0; me < 3; ++me) {
    ends.code[me] = end_of(children[me]);
    ends.formed[me] = reports->of[me].formed;
    if (ends.code[me] == 0) {
      EXPECT_EQ(std::strlen(reports->of[me].error) == 0, ends.formed[me]) << what << ": " << reports->of[me].error;
    }
  }
  return ends;
}

TEST(Mesh, AStrangerWhoConnectsFirstTakesNoPart) {
  const struct {
    const char* what;
    std::string talk;
    bool hangs_up;
  } cases[] = {
      {"silent", "", false},
      {"hangs up", "", true},
      {"talks HTTP", "GET / HTTP/1.1\r\nHost: example\r\nAccept: everything there is\r\n\r\n", false},
      {"sends zeros", std::string(500, '\0'), false},
      {"behaves like a member up to the proof", preamble(3, 1, 32) + preamble(2, 1, 32), false},
  };
  for (const auto& c : cases) {
    const Ends ends = mesh_with_stranger(c.talk, c.hangs_up, c.what);
    // Who of two listens is decided by the order of their ports: the stranger may have come to an end that is not used.
    // Then the mesh forms, of its members; else it does for nobody, and each says why.
    for (int me = 0; me < 3; ++me) {
      EXPECT_EQ(ends.code[me], 0) << c.what;
      EXPECT_EQ(ends.formed[me], ends.formed[0]) << c.what;
    }
  }
}

TEST(Mesh, AStrangerWhoSpeaksGlooMayEndTheProcessButTakesNoPartEither) {
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  const Ends ends = mesh_with_stranger(preamble(1, 7, 16) + "0123456789abcdef", false, "sends data nobody asked for");
  EXPECT_TRUE(ends.code[0] == 0 || ends.code[0] == 128 + SIGABRT) << ends.code[0];
  for (int me : {1, 2}) {
    EXPECT_EQ(ends.code[me], 0);
    EXPECT_EQ(ends.formed[me], ends.code[0] == 0 && ends.formed[0]);
  }
}

// ---- two machines ----

int run(const std::string& command) { return system((command + " >/dev/null 2>&1").c_str()); }

struct NoAbort : Watch {
  bool abandoned(uint64_t, int64_t) const override { return false; }
};

// Two network namespaces joined by a cable; the first has 10.77.0.1, the second 10.77.0.2 and .3.
class TwoHosts {
 public:
  TwoHosts() {
    const std::string a = name(0), b = name(1), pid = std::to_string(getpid() % 100000);
    up_ = run("ip netns add " + a) == 0 && run("ip netns add " + b) == 0 &&
          run("ip link add tva" + pid + " netns " + a + " type veth peer name tvb" + pid + " netns " + b) == 0 &&
          run("ip -n " + a + " address add 10.77.0.1/24 dev tva" + pid) == 0 &&
          run("ip -n " + b + " address add 10.77.0.2/24 dev tvb" + pid) == 0 &&
          run("ip -n " + b + " address add 10.77.0.3/24 dev tvb" + pid) == 0 &&
          run("ip -n " + a + " link set lo up") == 0 && run("ip -n " + b + " link set lo up") == 0 &&
          run("ip -n " + a + " link set tva" + pid + " up") == 0 &&
          run("ip -n " + b + " link set tvb" + pid + " up") == 0;
  }
  ~TwoHosts() {
    for (int host : {0, 1}) run("ip netns delete " + name(host));
  }
  bool up() const { return up_; }
  static void enter(int host) {
    const int fd = open(("/run/netns/" + name_of(getppid(), host)).c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) throw std::runtime_error("can't enter the namespace");
    close(fd);
  }

 private:
  static std::string name_of(pid_t pid, int host) {
    return "tandem" + std::to_string(pid) + "-" + std::to_string(host);
  }
  static std::string name(int host) { return name_of(getpid(), host); }
  bool up_ = false;
};

TEST(Mesh, BetweenTwoNetworksOnlyTheMembersHostsReachThePorts) {
  if (geteuid() != 0) GTEST_SKIP() << "network namespaces need root";
  const TwoHosts hosts;
  if (!hosts.up()) GTEST_SKIP() << "no network namespaces here";
  struct Verdict {
    std::atomic<bool> ask, given, reached;
  };
  const Shared<Verdict> verdict;
  struct Asking : KeyValueStore {
    Asking(KeyValueStore& b, Verdict& v) : store(b), verdict(v) {}
    void set(const std::string& key, const std::string& bytes) override { store.set(key, bytes); }
    std::string get(const std::string& key, double timeout) override {
      // When rank 0 asks for rank 2, it has closed its port for rank 1 to other hosts. Rank 1 comes after the stranger.
      if (key == "test/2-0") verdict.ask = true;
      if (key == "test/2-0" || key == "test/0-1")
        while (!verdict.given) sched_yield();
      return store.get(key, timeout);
    }
    KeyValueStore& store;
    Verdict& verdict;
  };
  SharedStore store;
  const CombineTrial trial{.seed = 9,
                           .shards = 6,
                           .ranges = {{0, 2}, {2, 5}, {5, 6}},
                           .phases = {{.layout = {.floats = 500'000, .counts = 2}}}};
  const auto want = expected(trial);
  struct Records {
    Seen seen[3];
  };
  const Shared<Records> records;
  std::vector<pid_t> children;
  for (int me = 0; me < 3; ++me) {
    children.push_back(start([&, me] {
      TwoHosts::enter(me == 0 ? 0 : 1);
      Asking asking(store, *verdict);
      MeshOptions options = loopback(me, 3, 600);
      options.interface_or_address = me == 0 ? "10.77.0.1" : "10.77.0.2";
      const NoAbort watch;
      GlooCombine combine(6, trial.ranges, connect_mesh(options, asking), 1, 0, watch);
      records->seen[me] = run_phase(combine, trial, 0, trial.ranges[me], {&trial.ranges[me], 1}, 3)[0];
    }));
  }
  children.push_back(start([&] {
    TwoHosts::enter(1);
    while (!verdict->ask) sched_yield();
    const sockaddr_in to = address_on(store.get("test/0-1", 30));
    sockaddr_in from{};
    from.sin_family = AF_INET;
    inet_pton(AF_INET, "10.77.0.3", &from.sin_addr);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (bind(fd, reinterpret_cast<sockaddr*>(&from), sizeof from) != 0) throw std::runtime_error("bind");
    connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to);
    pollfd wait{fd, POLLOUT, 0};
    verdict->reached = poll(&wait, 1, 300) != 0;
    close(fd);
    verdict->given = true;
  }));
  for (pid_t child : children) EXPECT_EQ(end_of(child), 0);
  EXPECT_FALSE(verdict->reached) << "another host reached a port that waits for 10.77.0.2";
  for (int me = 0; me < 3; ++me) EXPECT_EQ(records->seen[me], want[0][me]) << me;
}

}  // namespace
}  // namespace tandem
