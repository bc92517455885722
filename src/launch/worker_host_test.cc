// A supervisor and what rank 0 keeps of it, each with the other played by the test.
#include "launch/worker_host.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "base/temp_dir.h"
#include "launch/net_transport.h"
#include "launch/remote_worker_handle.h"
#include "launch/rendezvous.h"
#include "launch/worker_folder.h"

namespace tandem {
namespace {

std::optional<Frame> next_with(Link& link, const std::string& word) {
  for (int turns = 0; turns < 100 && !link.broken(); ++turns) {
    while (auto frame = link.next())
      if (frame->head.contains(word)) return frame;
    pollfd wait{link.poll_fd(), POLLIN, 0};
    poll(&wait, 1, 100);
    link.pump();
  }
  return std::nullopt;
}

// ---- rank 0's side ----

struct Wire {
  Wire() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) throw std::runtime_error("wire");
    const SessionKeys keys{"key of one", "key of the other"};
    here = std::make_unique<Link>(ends[0], keys, true);
    there = std::make_unique<Link>(ends[1], keys, false);
    worker = std::make_unique<RemoteWorkerHandle>(1, DeviceSpec{}, *here, "elsewhere", "recipe", dir / "log");
  }
  TempDir dir;
  std::unique_ptr<Link> here, there;
  std::unique_ptr<RemoteWorkerHandle> worker;
};

nlohmann::json ended(uint64_t of) {
  return {{"of", of},       {"ended", "was killed"},  {"by_signal", 9},
          {"exit_code", 0}, {"out_of_memory", false}, {"words", ""}};
}

TEST(RemoteWorkerHandle, WhatADeadWorkerLeftOnTheWayIsNotItsSuccessors) {
  Wire wire;
  wire.worker->start(false);
  const uint64_t first = next_with(*wire.there, "start")->head.at("of");
  wire.worker->start(true);
  const uint64_t second = next_with(*wire.there, "start")->head.at("of");
  EXPECT_NE(first, second);
  WorkerState state{.step = 77};
  wire.there->send({{"of", first}, {"message", {{"adopted", 3}}}});
  wire.there->send({{"of", first}, {"records", {"a record"}}});
  wire.there->send({{"of", first}, {"state", to_json(state)}});
  wire.there->send(ended(first));
  EXPECT_FALSE(wire.worker->receive());
  EXPECT_FALSE(wire.worker->pop_record());
  EXPECT_FALSE(wire.worker->has_ended());
  EXPECT_EQ(wire.worker->progress().step, 0);
  wire.there->send({{"of", second}, {"message", {{"adopted", 4}}}});
  wire.there->send({{"of", second}, {"state", to_json(state)}});
  const auto message = wire.worker->receive();
  ASSERT_TRUE(message);
  EXPECT_EQ(message->body.at("adopted"), 4);
  EXPECT_EQ(wire.worker->progress().step, 77);
  wire.there->send(ended(second));
  EXPECT_TRUE(wire.worker->has_ended());
}

TEST(NetTransport, ABufferThatWasGivenUpIsReplacedOnAllHosts) {
  Wire wire;
  SnapshotLayout layout;
  layout.add({.name = "weight", .shape = {3}, .model = true, .bytes = 12});
  SnapshotPool pool(layout.bytes());
  NetTransport transport({}, layout, pool, {{1, wire.worker.get()}});
  EXPECT_FALSE(pool.abandon()) << "nothing was being written";
  const auto buffer = pool.begin();
  EXPECT_EQ(pool.abandon(), buffer);
  transport.abandoned(*buffer);
  const auto reported = next_with(*wire.there, "replace");
  ASSERT_TRUE(reported);
  EXPECT_EQ(reported->head.at("replace"), *buffer);
}

// ---- the supervisor's side: it runs here, rank 0 is a thread ----

struct Host {
  Host() {
    info.size = 2;
    info.address = "127.0.0.1";
    info.first_port = 31000 + getpid() % 1000;
    info.job = "worker-host/" + std::to_string(getpid());
    info.by = "a test";
  }
  // What rank 0 does, until it lets the supervisor go with this code.
  template <class Play>
  void run(Play play) {
    const Build build{"1.0", std::make_shared<WorkerProgram>(STAND_IN_WORKER)};
    Gathering ranks(info, "a secret of tests", build);
    std::thread rank_zero([&] {
      ranks.gather(600, true);
      play(ranks.link(1));
      ranks.dismiss(7);
    });
    RankInfo other = info;
    other.rank = 1;
    EXPECT_EQ(host_worker({.info = other, .secret = "a secret of tests", .build = build, .join_seconds = 600}), 7);
    rank_zero.join();
  }
  RankInfo info;
};

TEST(WorkerHost, AReplacedBufferIsNewMemory) {
  Host host;
  host.run([](Link& link) {
    link.send({{"buffers", 64}});
    const auto held = [&](int id) {
      link.send({{"get", 1}, {"at", 0}, {"bytes", 4}, {"id", id}});
      const auto frame = next_with(link, "got");
      return frame ? frame->bulk : "nothing came";
    };
    link.send({{"put", 1}, {"at", 0}}, "abcd");
    EXPECT_EQ(held(1), "abcd");
    link.send({{"replace", 1}});
    EXPECT_EQ(held(2), std::string(4, '\0'));
  });
}

TEST(WorkerHost, NumbersWhatItSaysAndHearsOnlyWhatIsMeantForTheWorkerThatRuns) {
  setenv("TANDEM_STAND_IN", "exit 42", 1);
  Host host;
  host.run([](Link& link) {
    for (const uint64_t number : {5, 6}) {
      link.send({{"start", true}, {"of", number}, {"replacement", true}, {"recipe", "nothing"}});
      const auto frame = next_with(link, "ended");
      ASSERT_TRUE(frame);
      EXPECT_EQ(frame->head.at("of"), number);
      EXPECT_EQ(frame->head.at("exit_code"), 42);
    }
  });
  setenv("TANDEM_STAND_IN", "stay", 1);
  host.run([](Link& link) {
    link.send({{"start", true}, {"of", 7}, {"replacement", true}, {"recipe", "nothing"}});
    EXPECT_TRUE(next_with(link, "state"));
    link.send({{"kill", true}, {"of", 6}});  // late: its worker is gone
    for (int times = 0; times < 5; ++times) ASSERT_TRUE(next_with(link, "state")) << "it still works";
    link.send({{"start", true}, {"of", 8}, {"replacement", true}, {"recipe", "nothing"}});
    for (auto frame = next_with(link, "state"); frame && frame->head.at("of") != 8; frame = next_with(link, "state")) {
    }
    link.send({{"kill", true}, {"of", 8}});
    const auto frame = next_with(link, "ended");
    ASSERT_TRUE(frame);
    EXPECT_EQ(frame->head.at("of"), 8);
    EXPECT_EQ(frame->head.at("by_signal"), SIGKILL);
  });
  unsetenv("TANDEM_STAND_IN");
}

// ---- its folder ----

TEST(WorkerFolder, IsGoneWithItsOwnerAndWhatAKilledOneLeftIsSwept) {
  const TempDir temporary;
  setenv("TMPDIR", temporary.path().c_str(), 1);
  const auto old = [](const std::filesystem::path& path) {
    const timespec then[2] = {{1, 0}, {1, 0}};
    utimensat(AT_FDCWD, path.c_str(), then, 0);
  };
  std::filesystem::path mine;
  {
    const WorkerFolder folder("text");
    mine = folder.path();
    EXPECT_TRUE(std::filesystem::exists(mine / "recipe.toml"));
    const std::filesystem::path left = temporary / "tandem-start-abcdef", fresh = temporary / "tandem-start-fedcba",
                                foreign = temporary / "tandem-other";
    for (const auto& path : {left, fresh, foreign}) std::filesystem::create_directories(path / "inside");
    for (const auto& path : {mine, left, foreign}) old(path);
    WorkerFolder::sweep();
    EXPECT_TRUE(std::filesystem::exists(mine)) << "its owner lives";
    EXPECT_FALSE(std::filesystem::exists(left));
    EXPECT_TRUE(std::filesystem::exists(fresh)) << "its owner may not have locked it yet";
    EXPECT_TRUE(std::filesystem::exists(foreign));
  }
  EXPECT_FALSE(std::filesystem::exists(mine));
  unsetenv("TMPDIR");
}

}  // namespace
}  // namespace tandem
