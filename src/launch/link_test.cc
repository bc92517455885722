#include "launch/link.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "base/errors.h"
#include "base/sha256.h"
#include "base/temp_dir.h"
#include "launch/rendezvous.h"
#include "launch/secret.h"

namespace tandem {
namespace {

const Credentials kOurs{"the secret of this test", "job/29500/3", 3};

// ---- frames ----

TEST(Frames, SurviveBeingCutAnywhere) {
  const std::string key = random_bytes(32);
  std::string wire =
      encode_frame({{"order", 1}}, "", key, 0) + encode_frame({{"put", 2}}, std::string(3000, 'x'), key, 1);
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{500}, wire.size()}) {
    FrameReader reader(key);
    std::vector<Frame> frames;
    for (size_t at = 0; at < wire.size(); at += piece) {
      reader.feed(std::string_view(wire).substr(at, piece));
      while (auto frame = reader.next()) frames.push_back(std::move(*frame));
    }
    ASSERT_EQ(frames.size(), 2u);
    EXPECT_EQ(frames[1].head.at("put"), 2);
    EXPECT_EQ(frames[1].bulk, std::string(3000, 'x'));
  }
}

TEST(Frames, AChangedByteARepeatedFrameAndAnotherKeyAreRefused) {
  const std::string key = random_bytes(32), wire = encode_frame({{"exit", 0}}, "bulk", key, 0);
  for (size_t at = 0; at < wire.size(); ++at) {
    std::string changed = wire;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    FrameReader reader(key);
    reader.feed(changed);
    try {
      EXPECT_FALSE(reader.next()) << "byte " << at;  // a longer length: still waiting
    } catch (const std::runtime_error&) {
    }
  }
  FrameReader reader(key);
  reader.feed(wire + wire);
  EXPECT_TRUE(reader.next());
  EXPECT_THROW(reader.next(), std::runtime_error) << "a frame played twice";
  FrameReader other(random_bytes(32));
  other.feed(wire);
  EXPECT_THROW(other.next(), std::runtime_error);
}

TEST(Frames, AbsurdLengthsAreRefusedBeforeAnythingIsKept) {
  FrameReader reader("");
  reader.feed(std::string("\xff\xff\xff\xff\0\0\0\0", 8));
  EXPECT_THROW(reader.next(), std::runtime_error);
  FrameReader text("");
  text.feed(std::string("\x03\0\0\0\0\0\0\0[1]", 11));
  EXPECT_THROW(text.next(), std::runtime_error) << "a head is an object";
}

// ---- the handshake, without sockets ----

// What a client says, made by hand.
std::string number(uint64_t n) { return {reinterpret_cast<const char*>(&n), sizeof n}; }
std::string hello_of(const Credentials& c, const std::string& nonce) {
  Sha256 tag;
  tag.update("tandem job/" + std::to_string(c.size) + "/" + c.job);
  return std::string("tandem-link 1\0\0\0", 16) + from_hex(tag.hex()) + nonce;
}
std::string proof_of(const Credentials& c, int rank, const std::string& ours, const std::string& theirs) {
  return number(static_cast<uint64_t>(rank)).substr(0, 4) +
         keyed_digest(c.secret, {"tandem link 1", "client", c.job, number(static_cast<uint64_t>(c.size)),
                                 number(static_cast<uint64_t>(rank)), ours, theirs});
}

TEST(Greeting, ProvesOnceAndAnEarlierConversationPlayedAgainProvesNothing) {
  const std::string nonce = random_bytes(32);
  Greeting first(kOurs, random_bytes(32)), again(kOurs, random_bytes(32));
  const std::string hello = hello_of(kOurs, nonce), theirs = first.heard(hello).substr(16);
  const std::string proof = proof_of(kOurs, 1, nonce, theirs);
  EXPECT_EQ(first.heard(proof).substr(0, 14), "tandem-welcome");
  EXPECT_EQ(first.state(), Greeting::State::kProved);
  EXPECT_EQ(first.rank(), 1);
  again.heard(hello);
  EXPECT_EQ(again.heard(proof).substr(0, 15), "tandem-unproved");
  EXPECT_EQ(again.state(), Greeting::State::kRefused);
}

TEST(Greeting, AnotherRankSecretJobOrSizeThanWasProvedIsRefused) {
  const std::string nonce = random_bytes(32);
  for (const Credentials& c : {Credentials{"wrong", kOurs.job, 3}, Credentials{kOurs.secret, "other", 3},
                               Credentials{kOurs.secret, kOurs.job, 4}}) {
    Greeting greeting(kOurs, random_bytes(32));
    const std::string theirs = greeting.heard(hello_of(c, nonce));
    if (greeting.wanted()) greeting.heard(proof_of(c, 1, nonce, theirs.substr(16)));
    EXPECT_EQ(greeting.state(), Greeting::State::kRefused);
  }
  Greeting greeting(kOurs, random_bytes(32));
  std::string proof = proof_of(kOurs, 1, nonce, greeting.heard(hello_of(kOurs, nonce)).substr(16));
  proof[0] = 2;
  greeting.heard(proof);
  EXPECT_EQ(greeting.state(), Greeting::State::kRefused) << "proved rank 1, claimed rank 2";
}

TEST(Greeting, ItsOwnAnswerSentBackIsNoProof) {
  Greeting greeting(kOurs, random_bytes(32));
  const std::string nonce = random_bytes(32), theirs = greeting.heard(hello_of(kOurs, nonce)).substr(16);
  greeting.heard(number(1).substr(0, 4) + keyed_digest(kOurs.secret, {"tandem link 1", "server", kOurs.job, number(3),
                                                                      number(1), nonce, theirs}));
  EXPECT_EQ(greeting.state(), Greeting::State::kRefused);
}

TEST(Greeting, ReadsAtMost116BytesOfAStranger) { EXPECT_EQ(Greeting::kHelloBytes + Greeting::kProofBytes, 116u); }

TEST(Greeting, GarbageGetsNoAnswerAtAll) {
  Greeting greeting(kOurs, random_bytes(32));
  EXPECT_EQ(greeting.heard(std::string(greeting.wanted(), 'A')), "");
  EXPECT_EQ(greeting.state(), Greeting::State::kRefused);
  EXPECT_EQ(greeting.wanted(), 0u);
}

// ---- over real sockets ----

struct Listener {
  Listener() {
    info.size = 2;
    info.address = "127.0.0.1";
    info.first_port = 20000 + getpid() % 10000;
    info.job = "job/" + std::to_string(getpid());
    info.by = "a test";
  }
  RankInfo of(int rank) const {
    RankInfo other = info;
    other.rank = rank;
    return other;
  }
  RankInfo info;
};

TEST(Rendezvous, RanksFindEachOtherAndTheListenerCloses) {
  const Listener at;
  Gathering ranks(at.of(0), "a secret of tests", {"1.0", nullptr});
  std::unique_ptr<Link> link;
  std::thread other([&] { link = join_rank_zero(at.of(1), "a secret of tests", {"1.0", nullptr}, 10); });
  ranks.gather(10, true);
  other.join();
  ranks.link(1).send({{"hello", "you"}}, "bulk");
  std::optional<Frame> frame;
  while (!(frame = link->next()) && !link->broken()) {
    pollfd wait{link->poll_fd(), POLLIN, 0};
    poll(&wait, 1, 1000);
    link->pump();
  }
  ASSERT_TRUE(frame);
  EXPECT_EQ(frame->bulk, "bulk");
  EXPECT_EQ(call("127.0.0.1", at.info.first_port, {"a secret of tests", at.info.job, 2}, 1, 1).outcome,
            Attempt::Outcome::kNobody);
}

TEST(Rendezvous, AWrongSecretAnotherVersionAndATakenRankAreToldToWhoCanMendThem) {
  const Listener at;
  Gathering ranks(at.of(0), "a secret of tests", {"1.0", nullptr});
  std::vector<std::string> errors;
  std::thread others([&] {
    const auto attempt = [&](const std::string& secret, const std::string& version) -> std::unique_ptr<Link> {
      try {
        return join_rank_zero(at.of(1), secret, {version, nullptr}, 10);
      } catch (const Error& error) {
        errors.push_back(error.what());
        return nullptr;
      }
    };
    attempt("another secret", "1.0");
    attempt("a secret of tests", "0.9");
  });
  EXPECT_THROW(ranks.gather(4, true), ConfigError);
  others.join();
  ASSERT_EQ(errors.size(), 2u);
  EXPECT_NE(errors[0].find("could not prove itself"), std::string::npos);
  EXPECT_NE(errors[1].find("version 0.9"), std::string::npos);
}

TEST(Rendezvous, AWorkerOfAnotherBuildOfTheSameVersionIsRefused) {
  const Listener at;
  const TempDir dir;
  std::filesystem::copy_file(STAND_IN_WORKER, dir / "worker");
  std::ofstream(dir / "worker", std::ios::app) << "another build";
  Gathering ranks(at.of(0), "a secret of tests", {"1.0", std::make_shared<WorkerProgram>(STAND_IN_WORKER)});
  std::string what, todo;
  std::thread other([&] {
    try {
      join_rank_zero(at.of(1), "a secret of tests", {"1.0", std::make_shared<WorkerProgram>(dir / "worker")}, 10);
    } catch (const Error& error) {
      what = error.what();
      todo = error.todo();
    }
  });
  EXPECT_THROW(ranks.gather(4, true), ConfigError);
  other.join();
  EXPECT_NE(what.find("the worker of rank 1 is another build"), std::string::npos) << what;
  EXPECT_NE(todo.find("copy the program"), std::string::npos);
}

TEST(Rendezvous, ASecondRankZeroOfTheJobIsRefused) {
  const Listener at;
  Gathering first(at.of(0), "a secret of tests", {"1.0", nullptr});
  std::thread busy([&] {
    try {
      first.gather(3, true);
    } catch (const Error&) {
    }
  });
  EXPECT_THROW(Gathering(at.of(0), "a secret of tests", {"1.0", nullptr}), ConfigError);
  busy.join();
}

TEST(Rendezvous, SilentAndNoisyStrangersDoNotDisturbTheOthers) {
  const Listener at;
  Gathering ranks(at.of(0), "a secret of tests", {"1.0", nullptr});
  std::unique_ptr<Link> link;
  std::thread other([&] {
    const auto connect_raw = [&] {
      sockaddr_in to{};
      to.sin_family = AF_INET;
      to.sin_port = htons(static_cast<uint16_t>(at.info.first_port));
      to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      const int fd = socket(AF_INET, SOCK_STREAM, 0);
      EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
      return fd;
    };
    std::vector<int> silent;
    for (int i = 0; i < 80; ++i) silent.push_back(connect_raw());  // more than are kept waiting
    const int garbage = connect_raw();
    const std::string noise = random_bytes(4096);
    EXPECT_GT(send(garbage, noise.data(), noise.size(), MSG_NOSIGNAL), 0);
    link = join_rank_zero(at.of(1), "a secret of tests", {"1.0", nullptr}, 10);
    for (const int fd : silent) close(fd);
    close(garbage);
  });
  ranks.gather(15, true);
  other.join();
  EXPECT_TRUE(link);
}

// ---- the secret ----

TEST(Secret, IsMadeOnceForItsOwnerAlone) {
  const TempDir dir;
  const Variables home = [&](const char* name) {
    return std::string(name) == "XDG_CONFIG_HOME" ? dir.path().c_str() : nullptr;
  };
  const std::string secret = shared_secret(home);
  EXPECT_EQ(secret.size(), 64u);
  EXPECT_EQ(shared_secret(home), secret);
  const auto file = dir.path() / "tandem" / "secret";
  struct stat about {};
  ASSERT_EQ(stat(file.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 07777, 0600u);
  chmod(file.c_str(), 0640);
  EXPECT_THROW(shared_secret(home), ConfigError);
}

TEST(Secret, TooShortIsRefused) {
  const auto of = [](const char* text) {
    return shared_secret([=](const char* name) { return std::string(name) == "TANDEM_SECRET" ? text : nullptr; });
  };
  EXPECT_THROW(of("123456789012345"), ConfigError);
  EXPECT_EQ(of("1234567890123456").size(), 16u);
}

TEST(Secret, FieldsAreToldApart) {
  EXPECT_NE(keyed_digest("key", {"ab", "c"}), keyed_digest("key", {"a", "bc"}));
  EXPECT_EQ(from_hex(to_hex(std::string("\0\x7f\xff", 3))), std::string("\0\x7f\xff", 3));
  EXPECT_THROW(from_hex("0g"), std::runtime_error);
}

}  // namespace
}  // namespace tandem
