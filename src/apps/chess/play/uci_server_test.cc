// The engine as a GUI meets it, with a player that thinks until it is stopped.
#include "apps/chess/play/uci_server.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "world/chess/notation.h"

namespace tandem::chess {
namespace {

// Says one thought and waits until it is stopped; answers the first legal move.
class Ponderer : public Player {
 public:
  std::string name() const override { return "ponderer"; }
  Thought think(const Game& game, const ThinkRequest& request) override {
    MoveList list;
    legal_moves(game.position(), list);
    Thought thought{.move = list[0], .score = Score{.centipawns = 7}, .depth = 1, .nodes = 5};
    thought.line = {list[0]};
    if (request.report) request.report(thought);
    std::mutex mutex;
    std::condition_variable_any never;
    std::unique_lock lock(mutex);
    if (!request.depth) never.wait(lock, request.stop, [] { return false; });
    return thought;
  }

 private:
  void prepare_game(uint64_t, const std::stop_token&) override {}
};

class ServerUnderTest {
 public:
  explicit ServerUnderTest(PlayerChoice choice = ponderer()) {
    EXPECT_EQ(pipe(to_), 0);
    EXPECT_EQ(pipe(from_), 0);
    thread_ = std::thread([this, choice] {
      UciServer(choice, "under test", to_[0], from_[1]).run();
      close(from_[1]);
    });
  }
  ~ServerUnderTest() {
    end_input();
    while (!read_line().empty()) continue;
    thread_.join();
    close(to_[0]);
    close(from_[0]);
  }
  static PlayerChoice ponderer() {
    PlayerChoice choice;
    choice.name = "ponderer";
    choice.make = [](const PlaySettings&) { return std::make_unique<Ponderer>(); };
    return choice;
  }
  void send(const std::string& lines) const {
    EXPECT_EQ(write(to_[1], lines.data(), lines.size()), static_cast<ssize_t>(lines.size()));
  }
  void end_input() {
    if (to_[1] >= 0) close(to_[1]);
    to_[1] = -1;
  }
  // Empty: the engine has ended.
  std::string read_line() const {
    std::string line;
    for (char c; read(from_[0], &c, 1) == 1;) {
      if (c == '\n') return line;
      line += c;
    }
    return line;
  }
  // The lines up to one that begins so, that one last.
  std::vector<std::string> until(const std::string& beginning) const {
    std::vector<std::string> lines;
    do lines.push_back(read_line());
    while (!lines.back().empty() && !lines.back().starts_with(beginning));
    EXPECT_TRUE(lines.back().starts_with(beginning)) << beginning << " never came";
    return lines;
  }

 private:
  int to_[2], from_[2];
  std::thread thread_;
};

TEST(UciServer, IsReadyIsAnsweredWhileThePlayerThinks) {
  ServerUnderTest engine;
  engine.send("go infinite\n");
  engine.until("info depth 1 score cp 7 nodes 5");
  engine.send("isready\n");
  EXPECT_EQ(engine.read_line(), "readyok");
  engine.send("stop\n");
  EXPECT_EQ(engine.read_line(), "bestmove a2a3");
}

TEST(UciServer, EachGoHasOneAnswerAndASecondStopNone) {
  ServerUnderTest engine;
  engine.send("stop\ngo infinite\nstop\nstop\n");
  engine.until("bestmove a2a3");
  engine.send("stop\nisready\n");
  EXPECT_EQ(engine.read_line(), "readyok");
  engine.send("go\ngo\ngo depth 1\n");  // the next one stops the one before
  for (int answers = 0; answers < 3; ++answers) engine.until("bestmove a2a3");
}

TEST(UciServer, ANewGameBeginsAtTheStartWhateverWasPlayedBefore) {
  ServerUnderTest engine;
  const auto answers = [&engine](const std::string& lines) {
    engine.send(lines + "go depth 1\n");
    return engine.until("bestmove").back();
  };
  const std::string at_start = answers("");
  EXPECT_NE(answers("position startpos moves a2a3\n"), at_start) << "Black is to move";
  EXPECT_EQ(answers("ucinewgame\n"), at_start);
  EXPECT_NE(answers("position startpos moves a2a3 h7h6 a3a4\n"), at_start) << "begins as the line of the game before";
}

TEST(UciServer, ANewGameIsToldToThePlayerOnceBeforeItsFirstMove) {
  struct Counts : Ponderer {
    explicit Counts(std::atomic<int>& begun) : begun(begun) {}
    void prepare_game(uint64_t, const std::stop_token&) override { ++begun; }
    std::atomic<int>& begun;
  };
  std::atomic<int> begun = 0;
  PlayerChoice choice = ServerUnderTest::ponderer();
  choice.make = [&begun](const PlaySettings&) { return std::make_unique<Counts>(begun); };
  ServerUnderTest engine(choice);
  engine.send("isready\ngo depth 1\ngo depth 1\n");
  engine.until("bestmove");
  engine.until("bestmove");
  EXPECT_EQ(begun, 1);
  engine.send("ucinewgame\nisready\n");
  engine.until("readyok");
  EXPECT_EQ(begun, 2);
  engine.send("go depth 1\nucinewgame\nisready\n");  // a new game while it thinks is that of the next search
  engine.until("bestmove");
  engine.send("go depth 1\n");
  engine.until("bestmove");
  EXPECT_EQ(begun, 3);
}

TEST(UciServer, TheReaderKeepsTheClockOfAPlayerThatDoesNot) {
  ServerUnderTest engine;
  engine.send("go movetime 60\n");
  engine.until("bestmove");
  engine.send("go wtime 100 btime 100 winc 0 binc 0\n");
  engine.until("bestmove");
}

TEST(UciServer, AnInfiniteSearchIsNotAnsweredBeforeStop) {
  ServerUnderTest engine;
  engine.send("go infinite depth 1\n");  // the player is done at once
  engine.until("info depth");
  engine.send("isready\n");
  EXPECT_EQ(engine.read_line(), "readyok");
  engine.send("ponderhit\nisready\n");
  EXPECT_EQ(engine.read_line(), "readyok") << "ponderhit is for `go ponder`";
  engine.send("stop\n");
  EXPECT_EQ(engine.read_line(), "bestmove a2a3");
}

TEST(UciServer, PonderingIsAnsweredAfterPonderhit) {
  ServerUnderTest engine;
  engine.send("go ponder depth 1\n");
  engine.until("info depth");
  engine.send("isready\n");
  EXPECT_EQ(engine.read_line(), "readyok");
  engine.send("ponderhit\n");
  EXPECT_EQ(engine.read_line(), "bestmove a2a3");
  engine.send("go ponder movetime 60\n");  // the clock begins at ponderhit
  engine.until("info depth");
  engine.send("ponderhit\n");
  EXPECT_EQ(engine.read_line(), "bestmove a2a3");
}

TEST(UciServer, TheEndOfTheInputEndsItWhileThePlayerThinks) {
  ServerUnderTest engine;
  engine.send("go infinite\n");
  engine.until("info depth");
  engine.end_input();
  EXPECT_EQ(engine.read_line(), "") << "nobody waits for that answer";
}

TEST(UciServer, QuitWhileThePlayerThinksEndsIt) {
  ServerUnderTest engine;
  engine.send("go infinite\nquit\nisready\n");
  while (true) {
    const std::string line = engine.read_line();
    if (line.empty()) break;
    EXPECT_NE(line, "readyok") << "it has ended";
  }
}

TEST(UciServer, AnAnswerThatStopAskedForComesBeforeQuit) {
  ServerUnderTest engine;
  engine.send("go infinite\n");
  engine.until("info depth");
  engine.send("stop\nquit\n");
  engine.until("bestmove a2a3");
}

TEST(UciServer, AFinishedPositionHasNoMove) {
  ServerUnderTest engine;
  engine.send("position fen 7k/5Q2/6K1/8/8/8/8/8 b - - 0 1\ngo infinite\nstop\n");  // stalemate
  EXPECT_EQ(engine.until("bestmove").back(), "bestmove (none)");
  engine.send("position fen 7k/6Q1/6K1/8/8/8/8/8 b - - 0 1\ngo\n");  // mate
  const auto lines = engine.until("bestmove");
  EXPECT_EQ(lines.back(), "bestmove (none)");
  EXPECT_NE(lines[lines.size() - 2].find("score mate 0"), std::string::npos);
}

TEST(UciServer, ALineBeyondTheLimitIsPassedOverAndSaid) {
  ServerUnderTest engine;
  std::thread sender([&] { engine.send("position startpos moves " + std::string(2 << 20, ' ') + "\nisready\n"); });
  const auto lines = engine.until("readyok");
  sender.join();
  EXPECT_NE(lines.front().find("passed over"), std::string::npos) << lines.front();
}

// What a player that is not ready yet and those who wait for it know of each other.
struct SlowStart {
  std::atomic<bool> ready = false, gave_up = false;
  std::atomic<int> looks = 0;  // so often has it looked whether it should stop
};

class SlowStarter : public Ponderer {
 public:
  explicit SlowStarter(SlowStart& start) : start_(start) {}

 private:
  void prepare_game(uint64_t, const std::stop_token& stop) override {
    for (; !start_.ready; ++start_.looks, std::this_thread::yield()) {
      if (!stop.stop_requested()) continue;
      start_.gave_up = true;
      throw PlayerFault(PlayerFault::Kind::kStopped, "it was not ready yet", "it was told to stop", "start it again");
    }
  }
  SlowStart& start_;
};

PlayerChoice slow_starter(SlowStart& start) {
  PlayerChoice choice = ServerUnderTest::ponderer();
  choice.make = [&start](const PlaySettings&) { return std::make_unique<SlowStarter>(start); };
  return choice;
}

TEST(UciServer, QuitWhileThePlayerStartsEndsIt) {
  SlowStart start;
  ServerUnderTest engine(slow_starter(start));
  engine.send("isready\ngo\nquit\n");
  EXPECT_EQ(engine.read_line(), "") << "nobody waits for its answers";
}

TEST(UciServer, StopWhileThePlayerStartsStillGivesAMove) {
  SlowStart start;
  ServerUnderTest engine(slow_starter(start));
  engine.send("go infinite\nstop\nisready\n");
  EXPECT_EQ(engine.read_line(), "readyok") << "isready is answered while it starts to think";
  const int looks = start.looks;
  while (start.looks < looks + 3 && !start.gave_up) std::this_thread::yield();
  EXPECT_FALSE(start.gave_up);
  start.ready = true;
  EXPECT_EQ(engine.until("bestmove").back(), "bestmove a2a3");
}

// A GUI that never waits: what it asks for is bounded, and so is the memory for it.
TEST(UciServer, CommandsThatWaitForAPlayerThatStartsAreBounded) {
  SlowStart start;
  ServerUnderTest engine(slow_starter(start));
  constexpr int kMore = 20, kAll = static_cast<int>(UciSearch::kMostJobs) + kMore;
  std::string lines = "isready\n";  // the first one waits for the player
  for (int i = 1; i < kAll; ++i) lines += "go\n";
  std::thread sender([&] { engine.send(lines + "isready\n"); });
  for (int i = 0; i < kMore; ++i) EXPECT_NE(engine.read_line().find("too many wait"), std::string::npos) << i;
  EXPECT_EQ(engine.read_line(), "readyok") << "at once";
  sender.join();
  start.ready = true;
  EXPECT_EQ(engine.until("readyok").back(), "readyok");
  engine.send("stop\n");
  for (int i = kMore; i < kAll - 1; ++i) engine.until("bestmove a2a3");
  engine.send("go depth 1\n");
  engine.until("bestmove a2a3");
}

// Says what it was asked for, as the line of its thought.
class Echo : public Ponderer {
 public:
  explicit Echo(ThinkRequest& asked) : asked_(asked) {}
  Thought think(const Game& game, const ThinkRequest& request) override {
    asked_ = request;
    return Ponderer::think(game, {.depth = 1});
  }

 private:
  ThinkRequest& asked_;
};

TEST(UciServer, ASideWithoutAClockHasTheOthers) {
  using std::chrono::milliseconds;
  ThinkRequest asked;
  PlayerChoice choice = ServerUnderTest::ponderer();
  choice.keeps_time = true;
  choice.make = [&asked](const PlaySettings&) { return std::make_unique<Echo>(asked); };
  ServerUnderTest engine(choice);
  for (const char* const go : {"go wtime 5000\n", "go btime 5000\n"}) {
    engine.send(std::string("position startpos moves e2e4\n") + go);  // Black is to move
    engine.until("bestmove");
    ASSERT_TRUE(asked.clocks) << go;
    EXPECT_EQ(asked.clocks->black, milliseconds(4950)) << go;
    EXPECT_EQ(asked.clocks->white, milliseconds(4950)) << go;
  }
}

class Fails : public Ponderer {
  Thought think(const Game&, const ThinkRequest&) override {
    throw PlayerFault(PlayerFault::Kind::kCrashed, "it crashed\nbestmove e2e4", "of a cause", "look at it");
  }
};

TEST(UciServer, APlayerThatFailsIsToldOfInOneLine) {
  PlayerChoice choice = ServerUnderTest::ponderer();
  choice.make = [](const PlaySettings&) { return std::make_unique<Fails>(); };
  ServerUnderTest engine(choice);
  engine.send("go\n");
  const auto lines = engine.until("bestmove");
  EXPECT_EQ(lines.back(), "bestmove (none)");
  EXPECT_EQ(lines[lines.size() - 2], "info string error: it crashed?bestmove e2e4; of a cause; look at it");
  engine.send("isready\n");
  engine.until("readyok");
}

TEST(UciLines, OfTwoThreadsStayWhole) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  constexpr int kLines = 300;
  const auto say = [&](UciOutput& output, char letter) {  // longer than a pipe takes at once
    for (int i = 0; i < kLines; ++i) output.line(std::string(10'000, letter));
  };
  std::thread writers([&] {
    UciOutput output(fds[1]);
    std::thread one([&] { say(output, 'a'); });
    say(output, 'b');
    one.join();
    close(fds[1]);
  });
  LineReader lines(fds[0], 100'000);
  int count = 0;
  for (; lines.next() == LineReader::Got::kLine; ++count)
    EXPECT_EQ(lines.line(), std::string(10'000, lines.line().empty() ? '?' : lines.line()[0]));
  EXPECT_EQ(count, 2 * kLines);
  writers.join();
  close(fds[0]);
}

TEST(UciLines, StayWholeOnAPipeThatDoesNotBlock) {
  int fds[2];
  ASSERT_EQ(pipe2(fds, O_NONBLOCK), 0);
  std::thread writer([&] {
    UciOutput output(fds[1]);
    output.line(std::string(300'000, 'a'));  // more than a pipe takes at once
    EXPECT_FALSE(output.closed());
    close(fds[1]);
  });
  LineReader lines(fds[0], 1'000'000);
  EXPECT_EQ(lines.next(), LineReader::Got::kLine);
  EXPECT_EQ(lines.line().size(), 300'000u);
  writer.join();
  close(fds[0]);
}

TEST(UciLines, SayWhatThePlayerSaid) {
  const std::vector<Move> line = {Move(12, 28, MoveKind::kDoubleStep), Move(52, 36, MoveKind::kDoubleStep)};
  Thought thought{.move = line[0], .score = Score{.centipawns = -31}, .depth = 4, .nodes = 1000, .line = line};
  EXPECT_EQ(info_line(thought, std::chrono::milliseconds(500)),
            "info depth 4 score cp -31 nodes 1000 nps 2000 time 500 pv e2e4 e7e5");
  thought.score = Score{.mate_in = -2};
  EXPECT_NE(info_line(thought, {}).find(" score mate -2 "), std::string::npos);
  EXPECT_EQ(info_line({.move = line[0]}, {}), "info time 0") << "a player that judges nothing says nothing";
  EXPECT_EQ(bestmove_line(Move(52, 60, MoveKind::kToKnight)), "bestmove e7e8n");
  EXPECT_EQ(bestmove_line(Move()), "bestmove (none)");
}

TEST(UciOptionsOfOurs, AreDeclaredAndChecked) {
  PlayerChoice choice = ServerUnderTest::ponderer();
  choice.depth = 2, choice.deepest = 6;
  UciOptions options(choice);
  for (const char* name : {"WeightsFile type string", "Temperature type string", "Nodes type spin", "Depth type spin",
                           "Seed type spin", "Move Overhead type spin"})
    EXPECT_TRUE(std::ranges::any_of(options.declarations(), [&](const std::string& line) {
      return line.starts_with(std::string("option name ") + name);
    })) << name;
  EXPECT_EQ(options.set("nodes", "500"), "") << "names are the same in capitals";
  EXPECT_EQ(options.nodes(), 500);
  for (const char* bad : {"-1", "many", "", "99999999999999999999", "5x"})
    EXPECT_NE(options.set("Nodes", bad), "") << bad;
  EXPECT_EQ(options.nodes(), 500);
  EXPECT_EQ(options.set("Depth", "6"), "");
  EXPECT_EQ(options.settings().depth, 6);
  EXPECT_NE(options.set("Depth", "7"), "");
  EXPECT_NE(options.set("Hash", "16").find("no option"), std::string::npos);
  EXPECT_EQ(options.set("Temperature", "0"), "");
  for (const char* bad : {"hot", "nan", "-1", "1e9"}) EXPECT_NE(options.set("Temperature", bad), "") << bad;
}

TEST(UciOptionsOfOurs, ThoseOfANetworkSayThatTheyDoNothingElsewhere) {
  PlayerChoice choice = ServerUnderTest::ponderer();
  EXPECT_NE(UciOptions(choice).set("WeightsFile", "net.safetensors").find("no network"), std::string::npos);
  EXPECT_NE(UciOptions(choice).set("Temperature", "1").find("no network"), std::string::npos);
  EXPECT_EQ(UciOptions(choice).set("WeightsFile", "<empty>"), "");
  choice.has_network = true;
  UciOptions options(choice);
  EXPECT_EQ(options.set("WeightsFile", "net.safetensors"), "");
  EXPECT_EQ(options.set("Temperature", "0.5"), "");
  EXPECT_EQ(options.settings(), (PlaySettings{"net.safetensors", 0.5, 0}));
}

}  // namespace
}  // namespace tandem::chess
