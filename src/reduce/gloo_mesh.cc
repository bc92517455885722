#include "reduce/gloo_mesh.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <gloo/common/error.h>
#include <gloo/common/logging.h>
#include <gloo/context.h>
#include <gloo/transport/address.h>
#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <linux/filter.h>
#include <net/if.h>
#include <netdb.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/errors.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;
using Digest = std::array<unsigned char, 32>;

class Deadline {
 public:
  explicit Deadline(double seconds)
      : end_(Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))) {}
  // At least 1 ms: Gloo takes 0 for "no limit".
  std::chrono::milliseconds left() const {
    return std::max(std::chrono::milliseconds(1),
                    std::chrono::duration_cast<std::chrono::milliseconds>(end_ - Clock::now()));
  }
  double seconds() const { return std::chrono::duration<double>(left()).count(); }

 private:
  Clock::time_point end_;
};

Error mesh_error(const MeshOptions& options, int rank, const std::string& what, const std::string& why) {
  return Error(ExitCode::kPeerLost, "rank " + std::to_string(options.me) + " " + what + " rank " + std::to_string(rank),
               why,
               "look whether that worker lives and whether a firewall lets its machine reach " +
                   options.interface_or_address + "; the connection is tried again");
}

// libtorch exports a Gloo of its own, of another version; see src/reduce/CMakeLists.txt.
void check_which_gloo() {
  Dl_info found{};
  const auto function = &gloo::transport::tcp::CreateDevice;
  if (dladdr(reinterpret_cast<const void*>(function), &found) && found.dli_fname &&
      std::string(found.dli_fname).find("libgloo") == std::string::npos) {
    throw std::logic_error(std::string("Gloo's functions come from ") + found.dli_fname +
                           ", not from libgloo.so: it must be linked before libtorch");
  }
}

// ---- addresses ----

gloo::transport::tcp::attr attr_of(const std::string& interface_or_address) {
  gloo::transport::tcp::attr attr;
  attr.ai_family = AF_UNSPEC;
  if (if_nametoindex(interface_or_address.c_str()) != 0) {
    attr.iface = interface_or_address;
    return attr;
  }
  attr.hostname = interface_or_address;
  addrinfo* found = nullptr;  // Gloo does not look at this call's answer
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  const int error =
      interface_or_address.empty() ? EAI_NONAME : getaddrinfo(interface_or_address.c_str(), nullptr, &hints, &found);
  if (error != 0) {
    throw ConfigError("there is no interface or address '" + interface_or_address + "' on this machine",
                      gai_strerror(error), "name an interface that `ip address` shows, or one of its addresses");
  }
  freeaddrinfo(found);
  return attr;
}

std::shared_ptr<gloo::transport::Device> make_device(const std::string& interface_or_address) {
  try {
    return gloo::transport::tcp::CreateDevice(attr_of(interface_or_address));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    throw ConfigError("can't listen on '" + interface_or_address + "'", e.what(),
                      "name an interface that `ip address` shows, or one of its addresses");
  }
}

std::string bytes_of(const std::vector<char>& bytes) { return {bytes.begin(), bytes.end()}; }

// Gloo's address begins with the sockaddr_storage that its socket is bound to.
sockaddr_storage sockaddr_of(const std::string& address) {
  sockaddr_storage found{};
  if (address.size() >= sizeof found) std::memcpy(&found, address.data(), sizeof found);
  return found;
}

std::vector<int> own_sockets_bound_to(const sockaddr_storage& address) {
  std::vector<int> found;
  DIR* folder = opendir("/proc/self/fd");
  if (!folder) return found;
  while (const dirent* entry = readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    sockaddr_storage bound{};
    socklen_t length = sizeof bound;
    int listens = 0;
    socklen_t listens_length = sizeof listens;
    if (entry->d_name[0] == '.' || getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &length) != 0) continue;
    getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &listens_length);
    if (listens && std::memcmp(&bound, &address, length) == 0) found.push_back(fd);
  }
  closedir(folder);
  return found;
}

// The kernel drops what others than the peer's host send to our listening socket. On loopback every address is ours.
void admit_only(const std::string& peer, const std::string& own) {
  const sockaddr_storage from = sockaddr_of(peer), bound = sockaddr_of(own);
  if (from.ss_family != AF_INET || bound.ss_family != AF_INET) return;
  const uint32_t address = ntohl(reinterpret_cast<const sockaddr_in&>(from).sin_addr.s_addr);
  if (address >> 24 == IN_LOOPBACKNET) return;
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(SKF_NET_OFF) + 12),  // the IP header's source
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, address, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, 0xffffffff),
      BPF_STMT(BPF_RET | BPF_K, 0),
  };
  const sock_fprog filter{4, program};
  for (int fd : own_sockets_bound_to(bound)) setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter);
}

// ---- the secret ----

void random_bytes(void* to, size_t n) {
  if (RAND_bytes(static_cast<unsigned char*>(to), static_cast<int>(n)) != 1)
    throw std::runtime_error("the system has no random numbers");
}

Digest keyed_digest(const MeshOptions& options, const std::vector<std::string>& fields) {
  std::string text = "tandem mesh 1";
  for (const std::string& field : fields) {  // with its length: no two lists of fields make the same text
    const uint64_t length = field.size();
    text.append(reinterpret_cast<const char*>(&length), sizeof length);
    text.append(field);
  }
  Digest digest;
  unsigned length = digest.size();
  if (!HMAC(EVP_sha256(), options.secret.data(), static_cast<int>(options.secret.size()),
            reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data(), &length))
    throw std::runtime_error("HMAC failed");
  return digest;
}

// ---- the mesh ----

// gloo::Context can be filled by a subclass only.
class Mesh : public gloo::Context {
 public:
  Mesh(const MeshOptions& options, std::shared_ptr<gloo::transport::Device> device, std::chrono::milliseconds timeout)
      : gloo::Context(options.me, options.size), salts(options.size) {
    device_ = std::move(device);
    transportContext_ = device_->createContext(rank, size);
    const auto fifth = timeout / 5 + std::chrono::milliseconds(1);  // when it connects, Gloo waits five times as long
    transportContext_->setTimeout(fifth);
    setTimeout(fifth);
  }
  gloo::transport::Context& transport() { return *transportContext_; }
  std::vector<uint64_t> salts;  // by peer: mixed into the numbers of all messages with it
};

std::string key_of(const MeshOptions& options, int from, int to) {
  return options.name + "/" + std::to_string(from) + "-" + std::to_string(to);
}

// What a member puts into the store for another: where it listens for it, and its half of the pair's salt.
struct PeerAddress {
  std::string address;
  uint64_t salt = 0;
};
std::string text_of(const PeerAddress& peer_address) {
  return std::string(reinterpret_cast<const char*>(&peer_address.salt), sizeof peer_address.salt) +
         peer_address.address;
}
PeerAddress peer_address_of(const std::string& text) {
  PeerAddress peer_address;
  if (text.size() < sizeof peer_address.salt) return peer_address;
  std::memcpy(&peer_address.salt, text.data(), sizeof peer_address.salt);
  peer_address.address = text.substr(sizeof peer_address.salt);
  return peer_address;
}

void connect_all(const MeshOptions& options, KeyValueStore& store, Mesh& mesh, const Deadline& deadline) {
  std::vector<PeerAddress> own(options.size), theirs(options.size);
  for (int peer = 0; peer < options.size; ++peer) {
    if (peer == options.me) continue;
    random_bytes(&own[peer].salt, sizeof own[peer].salt);
    own[peer].address = bytes_of(mesh.transport().createPair(peer)->address().bytes());  // listens from here on
    store.set(key_of(options, options.me, peer), text_of(own[peer]));
  }
  for (int peer = 0; peer < options.size; ++peer) {
    if (peer == options.me) continue;
    theirs[peer] = peer_address_of(store.get(key_of(options, peer, options.me), deadline.seconds()));
    mesh.salts[peer] = own[peer].salt ^ theirs[peer].salt;
    if (options.filter_hosts) admit_only(theirs[peer].address, own[peer].address);
  }
  // All at once: each may take all of the time.
  std::vector<std::string> errors(options.size);
  std::vector<std::thread> threads;
  for (int peer = 0; peer < options.size; ++peer) {
    if (peer == options.me) continue;
    threads.emplace_back([&, peer] {
      try {
        mesh.getPair(peer)->connect(std::vector<char>(theirs[peer].address.begin(), theirs[peer].address.end()));
      } catch (const std::exception& e) {
        errors[peer] = std::string("its address did not answer, or took another for us: ") + e.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int peer = 0; peer < options.size; ++peer)
    if (!errors[peer].empty()) throw mesh_error(options, peer, "can't connect to", errors[peer]);
}

Digest proof(const MeshOptions& options, int from, int to, const Digest& nonce_from, const Digest& nonce_to) {
  auto text = [](const Digest& nonce) {
    return std::string(reinterpret_cast<const char*>(nonce.data()), nonce.size());
  };
  return keyed_digest(options, {"proof", options.name, std::to_string(options.size), std::to_string(from),
                                std::to_string(to), text(nonce_from), text(nonce_to)});
}

// 32 bytes each way with every peer at once.
void exchange(const MeshOptions& options, Mesh& mesh, uint64_t round, std::vector<Digest>& out, std::vector<Digest>& in,
              const Deadline& deadline) {
  std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> sends(options.size), receives(options.size);
  auto with_each = [&](auto&& act) {
    for (int peer = 0; peer < options.size; ++peer) {
      if (peer == options.me) continue;
      try {
        act(peer);
      } catch (const std::exception& e) {
        throw mesh_error(options, peer, "had no proof from", e.what());
      }
    }
  };
  with_each([&](int peer) {
    receives[peer] = mesh.createUnboundBuffer(in[peer].data(), in[peer].size());
    sends[peer] = mesh.createUnboundBuffer(out[peer].data(), out[peer].size());
    const uint64_t slot = mesh.salts[peer] ^ (~uint64_t{0} - round);  // the highest numbers; a run's count from 0
    receives[peer]->recv(peer, slot);
    sends[peer]->send(peer, slot);
  });
  with_each([&](int peer) { receives[peer]->waitRecv(deadline.left()); });
  with_each([&](int peer) { sends[peer]->waitSend(deadline.left()); });
}

void prove_all(const MeshOptions& options, Mesh& mesh, const Deadline& deadline) {
  std::vector<Digest> mine(options.size), theirs(options.size), answers(options.size), proofs(options.size);
  for (Digest& nonce : mine) random_bytes(nonce.data(), nonce.size());
  exchange(options, mesh, 1, mine, theirs, deadline);
  for (int peer = 0; peer < options.size; ++peer)
    answers[peer] = proof(options, options.me, peer, mine[peer], theirs[peer]);
  exchange(options, mesh, 2, answers, proofs, deadline);
  for (int peer = 0; peer < options.size; ++peer) {
    if (peer == options.me) continue;
    const Digest want = proof(options, peer, options.me, theirs[peer], mine[peer]);
    if (CRYPTO_memcmp(want.data(), proofs[peer].data(), want.size()) != 0)
      throw mesh_error(options, peer, "refused the one who came as", "it does not know this run's secret");
  }
  // Everybody accepts everybody before anybody sends data: who refused one of us has not come here.
  for (Digest& word : mine) word.fill(1);
  exchange(options, mesh, 3, mine, theirs, deadline);
}

}  // namespace

std::shared_ptr<gloo::Context> connect_mesh(const MeshOptions& options, KeyValueStore& store) {
  if (options.size < 1 || options.me < 0 || options.me >= options.size) throw std::logic_error("no such rank");
  if (options.secret.empty()) throw std::logic_error("a mesh needs a secret");
  check_which_gloo();
  signal(SIGPIPE, SIG_IGN);
  const Deadline deadline(options.timeout_seconds);
  auto mesh = std::make_shared<Mesh>(options, make_device(options.interface_or_address), deadline.left());
  connect_all(options, store, *mesh, deadline);
  prove_all(options, *mesh, deadline);
  mesh->setTimeout(std::chrono::hours(24 * 365));  // a phase takes as long as it takes; deaths are heard of otherwise
  mesh->transport().setTimeout(std::chrono::hours(24 * 365));
  return mesh;
}

uint64_t mesh_salt(const gloo::Context& context, int peer) {
  const Mesh* mesh = dynamic_cast<const Mesh*>(&context);
  return mesh ? mesh->salts.at(peer) : 0;
}

}  // namespace tandem
