// tests/chess/engines_test.cc -- engines as processes: what they do wrong is named, bounded in time, and costs no more
// than the game.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "apps/chess/player_name.h"
#include "apps/chess/uci/uci_player.h"
#include "base/clock.h"
#include "base/temp_dir.h"
#include "world/chess/fen.h"
#include "world/chess/notation.h"

namespace tandem::chess {
namespace {

namespace fs = std::filesystem;
using Kind = PlayerFault::Kind;

// Short where a test waits for it to pass, long where it must not.
constexpr UciPatience kShort = {.handshake = 60, .ready = 60, .late = 0.3, .move = 0.3, .stop = 0.3, .quit = 0.3};
constexpr UciPatience kShortGreeting = {.handshake = 0.3, .quit = 0.3};
constexpr UciPatience kLong = {.handshake = 60, .ready = 60, .late = 60, .move = 60, .stop = 60, .quit = 60};

class Engines : public testing::Test {
 protected:
  UciSettings fake(const std::string& fault = "", const UciPatience& patience = kLong) const {
    UciSettings settings{.program = FAKE_ENGINE, .called = "fake", .nodes = 1, .patience = patience};
    if (!fault.empty()) settings.options.emplace_back("Fault", fault);
    return settings;
  }
  // A fake engine under a name that says what is wrong with its greeting.
  UciSettings named(const std::string& ending, const UciPatience& patience = kLong) const {
    const fs::path link = dir_ / ("engine-" + ending);
    fs::create_symlink(FAKE_ENGINE, link);
    UciSettings settings = fake("", patience);
    settings.program = link;
    return settings;
  }
  std::optional<PlayerFault> fault_of(UciPlayer& player, const Game& game = {}, const ThinkRequest& request = {}) {
    try {
      player.begin_game(1);
    } catch (const PlayerFault& fault) {
      return fault;
    }
    return fault_of_move(player, game, request);
  }
  std::optional<PlayerFault> fault_of_move(UciPlayer& player, const Game& game, const ThinkRequest& request = {}) {
    try {
      player.think(game, request);
    } catch (const PlayerFault& fault) {
      return fault;
    }
    return std::nullopt;
  }
  void expect_fault(UciSettings settings, Kind kind, const std::string& what, const std::string& why) {
    UciPlayer player(std::move(settings));
    const auto fault = fault_of(player);
    ASSERT_TRUE(fault) << what;
    EXPECT_EQ(static_cast<int>(fault->kind()), static_cast<int>(kind)) << fault->render();
    EXPECT_NE(std::string(fault->what()).find(what), std::string::npos) << fault->render();
    EXPECT_NE(fault->why().find(why), std::string::npos) << fault->render();
    EXPECT_EQ(player.pid(), -1) << "what went wrong is not kept";
  }

  TempDir dir_;
};

bool is_alive(pid_t pid) { return kill(pid, 0) == 0; }

TEST_F(Engines, PlayGameAfterGameInOneProcess) {
  UciPlayer player(fake());
  EXPECT_EQ(player.name(), "fake") << "as it was called, until it has said its name";
  pid_t pid = -1;
  for (uint64_t number = 0; number < 3; ++number) {
    player.begin_game(number);
    if (pid < 0) pid = player.pid();
    Game game;
    for (int ply = 0; ply < 30 && !game.result().over(); ++ply) {
      const Thought thought = player.think(game, {});
      ASSERT_TRUE(is_legal(game.position(), thought.move));
      EXPECT_EQ(thought.score, (Score{.centipawns = 25}));
      EXPECT_EQ(thought.depth, 3);
      EXPECT_EQ(thought.nodes, 77);
      EXPECT_EQ(thought.line, std::vector<Move>{thought.move});
      game.play(thought.move);
    }
  }
  EXPECT_EQ(player.pid(), pid);
  EXPECT_EQ(player.name(), "Fake 1.0, 1 nodes");
}

TEST_F(Engines, AreToldPositionsThatDoNotBeginAtTheStart) {
  UciPlayer player(fake());
  player.begin_game(1);
  Game game(position_of_fen("4k3/P7/8/8/8/8/8/4K3 w - - 3 40"));
  game.play(read_uci(game.position(), "e1d2").move);
  EXPECT_TRUE(is_legal(game.position(), player.think(game, {}).move));
  EXPECT_EQ(position_command(game), "position fen 4k3/P7/8/8/8/8/8/4K3 w - - 3 40 moves e1d2");
  EXPECT_EQ(position_command(Game()), "position startpos");
}

TEST_F(Engines, AreToldTheLimitsOfARequestAndTheirOwnBeforeThose) {
  using std::chrono::milliseconds;
  EXPECT_EQ(go_command({.move_time = milliseconds(50), .nodes = 7, .depth = 3}), "go movetime 50 nodes 7 depth 3");
  EXPECT_EQ(go_command({.infinite = true}), "go infinite");
  EXPECT_EQ(
      go_command({.clocks = Clocks{milliseconds(1000), milliseconds(900), milliseconds(10), milliseconds(20), 5}}),
      "go wtime 1000 btime 900 winc 10 binc 20 movestogo 5");
}

TEST_F(Engines, AreStartedWithTheWordsOfTheirCommandLine) {
  UciSettings settings = fake();
  settings.arguments = {"--called", "two words"};
  UciPlayer player(settings);
  player.begin_game(1);
  EXPECT_EQ(player.name(), "two words, 1 nodes");
}

TEST_F(Engines, ThatSayNothingOrDoNotSpeakUciAreNoEngines) {
  expect_fault(named("mute", kShortGreeting), Kind::kNoEngine, "does not speak UCI",
               "it said nothing, but no uciok within");
  expect_fault(named("dies"), Kind::kNoEngine, "does not speak UCI",
               "it said nothing, and it ended with exit status 3");
  expect_fault(named("chatters", kShortGreeting), Kind::kNoEngine, "does not speak UCI",
               "it said \"You said uci, did you not?\"");
  UciSettings echo = fake("", kShortGreeting);
  echo.program = "/bin/cat";
  expect_fault(echo, Kind::kNoEngine, "does not speak UCI", "it said \"uci\"");
  UciSettings nothing = fake();
  nothing.program = "/bin/true";
  expect_fault(nothing, Kind::kNoEngine, "does not speak UCI", "it ended with exit status 0");
}

// A hostile program: neither memory nor time goes to it, and it is called what the user called it.
TEST_F(Engines, ThatGreetWithoutEndAreNamedAndCostLittle) {
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  const double began = monotonic_seconds();
  expect_fault(named("floods"), Kind::kNoEngine, "fake does not speak UCI",
               "it said no line with words, and much more");
  expect_fault(named("blank"), Kind::kNoEngine, "fake does not speak UCI", "it said no line with words, and much more");
  expect_fault(named("endless"), Kind::kNoEngine, "fake does not speak UCI", "it said \"Welcome, number 0\", and much");
  expect_fault(named("boasts"), Kind::kNoEngine, "fake does not speak UCI",
               "it said \"id name Stockfish 99\", and much");
  expect_fault(named("raves"), Kind::kFlood, "Fake 1.0, 1 nodes says too much", "before readyok above 1 MiB");
  EXPECT_LT(monotonic_seconds() - began, kLong.handshake) << "the size ended it, not the time";
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 20'000) << "kB";
}

TEST_F(Engines, ThatAreNeverReadyAreSilent) {
  expect_fault(named("unready", {.handshake = 60, .ready = 0.3, .quit = 0.3}), Kind::kSilent, "is silent",
               "no readyok within");
}

TEST_F(Engines, ThatAreStillStartingAreStoppedAtOnce) {
  constexpr UciPatience for_ever = {.handshake = 1e6, .ready = 1e6, .quit = 0.3};
  for (const char* const kind : {"mute", "unready"}) {
    UciPlayer player(named(kind, for_ever));
    std::stop_source stop;
    const std::jthread stopper([&stop] { stop.request_stop(); });
    try {
      player.begin_game(1, stop.get_token());
      FAIL() << "it was ready";
    } catch (const PlayerFault& fault) {
      EXPECT_EQ(static_cast<int>(fault.kind()), static_cast<int>(Kind::kStopped)) << fault.render();
    }
    EXPECT_EQ(player.pid(), -1);
  }
}

TEST_F(Engines, ThatDoNotReadAreStoppedToo) {
  UciPatience patience = kLong;
  patience.move = 1e6, patience.stop = 0.3;
  UciPlayer player(named("sleeps", patience));
  Game game;  // its moves fill the pipe
  for (int i = 0; i < 10'000; ++i)
    for (const char* const move : {"g1f3", "g8f6", "f3g1", "f6g8"}) game.play(read_uci(game.position(), move).move);
  std::stop_source stop;
  stop.request_stop();
  const auto fault = fault_of(player, game, {.stop = stop.get_token()});
  ASSERT_TRUE(fault);
  EXPECT_NE(std::string(fault->what()).find("does not listen"), std::string::npos) << fault->render();
}

// What this machine has no room for is not the engine's fault: it would lose a game by it.
TEST_F(Engines, AreNotBlamedWhereDescriptorsRunOut) {
  UciPlayer player(fake());
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const int next = dup(STDIN_FILENO);
  close(next);
  for (rlim_t more = 0; more < 8; ++more) {  // the pipes, what watches the process
    const rlimit few{static_cast<rlim_t>(next) + more, before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
    EXPECT_THROW(player.begin_game(1), IoError) << more;
  }
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_NO_THROW(player.begin_game(1));
  EXPECT_TRUE(is_legal(start_position(), player.think({}, {}).move));
}

TEST_F(Engines, ThatCannotBeRunSayWhy) {
  const fs::path script = dir_ / "script";
  std::ofstream(script) << "#!/no/such/interpreter\n";
  fs::permissions(script, fs::perms::owner_all);
  UciSettings settings = fake();
  settings.program = script;
  expect_fault(settings, Kind::kNoEngine, "cannot start", "No such file");
}

TEST_F(Engines, ThatCrashAreNamedWithStatusPositionAndLastWords) {
  expect_fault(fake("crash"), Kind::kCrashed, "Fake 1.0, 1 nodes crashed", "signal 11 (Segmentation fault)");
  expect_fault(fake("exit"), Kind::kCrashed, "crashed", "exit status 3");
  expect_fault(fake("exit"), Kind::kCrashed, "crashed", std::string(kStartFen));
  expect_fault(fake("exit"), Kind::kCrashed, "crashed", "\"I have had enough\"");
}

TEST_F(Engines, ThatAreSilentAreLateNotWaitedFor) {
  expect_fault(fake("silent", kShort), Kind::kSilent, "is silent", "no bestmove within 0.3 s");
  expect_fault(fake("deaf", kShort), Kind::kSilent, "is silent", "no bestmove within 0.3 s");
  expect_fault(fake("chat", kShort), Kind::kSilent, "is silent", "no bestmove within 0.3 s");
}

// The GUI, or a person, may stop it; a search to a depth takes what it takes.
TEST_F(Engines, ThatSearchForEverAreWaitedForInPlay) {
  const UciPatience patience = UciPatience::of_play();
  EXPECT_GE(patience.move, kForEver);
  EXPECT_EQ(patience.late, UciPatience().late) << "a time for a move is one";
  const auto made = make_player(read_player_name(std::string("uci:") + FAKE_ENGINE), patience);
  EXPECT_EQ(dynamic_cast<UciPlayer&>(*made).patience().move, patience.move);
}

TEST_F(Engines, TellTheMoveTimeThatTheyAreToKeep) {
  using std::chrono::milliseconds;
  const auto time_of = [](const char* settings, const ThinkRequest& request) {
    return make_player(read_player_name(std::string("uci:") + FAKE_ENGINE + settings))->move_time(request);
  };
  EXPECT_EQ(time_of("", {}), UciPlayer::kUsualMoveTime);
  EXPECT_EQ(time_of("", {.move_time = milliseconds(30)}), milliseconds(30));
  EXPECT_EQ(time_of("", {.nodes = 30}), std::nullopt);
  EXPECT_EQ(time_of("", {.clocks = Clocks{}}), std::nullopt);
  EXPECT_EQ(time_of(",movetime=20", {.move_time = milliseconds(30)}), milliseconds(20));
  EXPECT_EQ(time_of(",nodes=20", {.move_time = milliseconds(30)}), std::nullopt);
}

TEST_F(Engines, ThatDoNotReadAreNotWaitedForEither) {
  UciPlayer player(fake("deaf", kShort));
  Game game;  // its moves fill the pipe
  for (int i = 0; i < 10'000; ++i)
    for (const char* const move : {"g1f3", "g8f6", "f3g1", "f6g8"}) game.play(read_uci(game.position(), move).move);
  const auto fault = fault_of(player, game);
  ASSERT_TRUE(fault);
  EXPECT_EQ(static_cast<int>(fault->kind()), static_cast<int>(Kind::kSilent)) << fault->render();
}

TEST_F(Engines, ThatPlayAnIllegalMoveAreNamedWithIt) {
  expect_fault(fake("illegal"), Kind::kIllegalMove, "played \"e2e5\"", "it was to move in rnbqkbnr/");
  expect_fault(fake("none"), Kind::kIllegalMove, "played \"(none)\"", "it was to move in");
}

TEST_F(Engines, ThatNeverStopTalkingAreStopped) {
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  expect_fault(fake("long"), Kind::kFlood, "says too much", "64 KiB");
  expect_fault(fake("flood"), Kind::kFlood, "says too much", "64 MiB");
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 20'000) << "kB";
}

// An analysis may take days.
TEST_F(Engines, MaySayTheMoreTheLongerTheyThink) {
  EngineProcess engine(FAKE_ENGINE, {}, {.most_output = 100, .output_a_second = size_t{1} << 50});
  const double until = monotonic_seconds() + kLong.move;
  engine.begin_answer();
  for (const char* const line : {"uci", "setoption name Fault value chat", "go"}) engine.send(line, until);
  std::string line;
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(engine.read_line(line, until), EngineProcess::Got::kLine) << i;
}

TEST_F(Engines, ThatAnswerTwiceAreNamedBeforeTheirNextMove) {
  UciPlayer player(fake("twice"));
  player.begin_game(1);
  Game game;
  game.play(player.think(game, {}).move);
  const auto fault = fault_of_move(player, game);
  ASSERT_TRUE(fault);
  EXPECT_EQ(static_cast<int>(fault->kind()), static_cast<int>(Kind::kIllegalMove)) << fault->render();
  EXPECT_NE(std::string(fault->what()).find("said bestmove \"a2a3\" that nobody had asked for"), std::string::npos)
      << fault->render();
}

TEST_F(Engines, MayAnswerTwiceWhenTheyAreToldToStop) {
  UciPlayer player(fake("anxious"));
  player.begin_game(1);
  std::stop_source stop;
  stop.request_stop();
  Game game;
  game.play(player.think(game, {.stop = stop.get_token()}).move);
  const Thought thought = player.think(game, {});
  EXPECT_TRUE(is_legal(game.position(), thought.move));
}

TEST_F(Engines, MaySayWhatTheyLikeOnStderr) {
  UciPlayer player(fake("stderr"));
  player.begin_game(1);
  Game game;
  for (int ply = 0; ply < 10; ++ply) game.play(player.think(game, {}).move);
  EXPECT_EQ(game.moves().size(), 10u);
}

TEST_F(Engines, AreStartedAgainForTheNextGame) {
  UciSettings settings = fake("crash 2");
  settings.options.emplace_back("Marker", (dir_ / "marker").string());
  UciPlayer player(settings);
  player.begin_game(1);
  const pid_t first = player.pid();
  Game game;
  game.play(player.think(game, {}).move);
  game.play(Move(Move::from_bits(read_uci(game.position(), "e7e5").move.bits())));
  EXPECT_THROW(player.think(game, {}), PlayerFault);
  EXPECT_FALSE(is_alive(first));
  player.begin_game(2);
  EXPECT_NE(player.pid(), first);
  for (int ply = 0; ply < 6; ++ply) game.play(player.think(game, {}).move);
}

TEST_F(Engines, AnswerWhenTheyAreToldToStop) {
  UciPlayer player(fake("late"));
  player.begin_game(1);
  std::stop_source stop;
  std::vector<int> scores;
  const ThinkRequest request{.infinite = true, .stop = stop.get_token(), .report = [&](const Thought& thought) {
                               scores.push_back(thought.score.value_or(Score{}).centipawns);
                               stop.request_stop();  // as another thread would, once it has seen something
                             }};
  EXPECT_TRUE(is_legal(start_position(), player.think({}, request).move));
  EXPECT_EQ(scores, (std::vector<int>{12, 25}));
}

TEST_F(Engines, ThatDoNotStopAreSilent) {
  UciPlayer player(fake("stubborn", kShort));
  player.begin_game(1);
  std::stop_source stop;
  stop.request_stop();
  try {
    player.think({}, {.stop = stop.get_token()});
    FAIL() << "it answered";
  } catch (const PlayerFault& fault) {
    EXPECT_NE(fault.why().find("after stop"), std::string::npos) << fault.render();
  }
}

TEST_F(Engines, AreGoneWithTheirPlayerEvenIfTheyDoNotQuit) {
  for (const char* const fault : {"", "linger"}) {
    pid_t pid = -1;
    {
      UciPlayer player(fake(fault, kShort));
      player.begin_game(1);
      pid = player.pid();
      EXPECT_TRUE(is_alive(pid));
    }
    EXPECT_FALSE(is_alive(pid)) << fault;
  }
}

TEST_F(Engines, OutliveTheThreadThatStartedThem) {
  UciPlayer player(fake());
  std::thread([&player] { player.begin_game(1); }).join();
  EXPECT_TRUE(is_legal(start_position(), player.think({}, {}).move));
}

TEST_F(Engines, EndWithTheProgramHoweverThatEnds) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer allows no threads after a fork";
#endif
  int report[2];
  ASSERT_EQ(pipe(report), 0);
  const pid_t program = fork();
  if (program == 0) {
    UciPlayer player(fake("linger"));
    player.begin_game(1);
    const pid_t engine = player.pid();
    if (write(report[1], &engine, sizeof engine) != sizeof engine) _exit(1);
    raise(SIGKILL);
  }
  close(report[1]);
  pid_t engine = -1;
  ASSERT_EQ(read(report[0], &engine, sizeof engine), static_cast<ssize_t>(sizeof engine));
  waitpid(program, nullptr, 0);
  const double until = monotonic_seconds() + 30;
  const auto ended = [engine] {  // nobody here is its parent: it is gone, or a zombie that init has not taken yet
    std::ifstream stat("/proc/" + std::to_string(engine) + "/stat");
    std::string text;
    return !std::getline(stat, text) || text.find(") Z") != text.npos;
  };
  while (!ended() && monotonic_seconds() < until) std::this_thread::yield();
  EXPECT_TRUE(ended());
  close(report[0]);
}

TEST_F(Engines, TakeOptionsWithinTheirRange) {
  UciSettings settings = fake();
  settings.options.emplace_back("level", "50");
  settings.elo = 900;
  UciPlayer player(settings);
  player.begin_game(1);
  EXPECT_EQ(player.notes(), (std::vector<std::string>{"Fake 1.0: Level 50 is above its most, 9 is used",
                                                      "Fake 1.0: UCI_Elo 900 is below its least, 1000 is used"}));
  EXPECT_EQ(player.name(), "Fake 1.0, UCI_Elo 1000, 1 nodes");
  EXPECT_EQ(player.promised_elo(), std::nullopt) << "only Stockfish's Elo is an anchor";
}

TEST_F(Engines, RefuseOptionsThatTheyDoNotHave) {
  UciSettings settings = fake();
  settings.options.emplace_back("Levle", "5");
  UciPlayer player(settings);
  try {
    player.begin_game(1);
    FAIL() << "it was taken";
  } catch (const ConfigError& error) {
    EXPECT_NE(error.todo().find("did you mean Level?"), std::string::npos) << error.render();
  }
  EXPECT_EQ(player.pid(), -1);
  settings.options = {{"Level", "high"}};
  UciPlayer other(settings);
  EXPECT_THROW(other.begin_game(1), ConfigError);
}

// ---- Debian's Stockfish, where it is installed ----

class Stockfish : public testing::Test {
 protected:
  void SetUp() override {
    try {
      make_player("stockfish");
    } catch (const ConfigError&) {
      GTEST_SKIP() << "no Stockfish here; scripts/setup.sh test brings it";
    }
  }
};

TEST_F(Stockfish, FindsMateAndTellsItsLine) {
  const auto player = make_player("stockfish:nodes=2000");
  player->begin_game(1);
  const Thought thought = player->think(Game(position_of_fen("6k1/5ppp/8/8/8/8/5PPP/3R2K1 w - - 0 1")), {});
  EXPECT_EQ(uci_of(thought.move), "d1d8");
  EXPECT_EQ(thought.score, (Score{.mate_in = 1}));
  EXPECT_NE(player->name().find("Stockfish"), std::string::npos);
}

TEST_F(Stockfish, PromisesAnEloWithinItsRange) {
  const auto weak = make_player("stockfish:1");
  weak->begin_game(1);
  ASSERT_TRUE(weak->promised_elo());
  EXPECT_GE(*weak->promised_elo(), 1000);
  ASSERT_EQ(weak->notes().size(), 1u);
  EXPECT_NE(weak->notes()[0].find("UCI_Elo 1 is below its least"), std::string::npos);
  const auto strong = make_player("stockfish");
  strong->begin_game(1);
  EXPECT_EQ(strong->promised_elo(), std::nullopt);
}

TEST_F(Stockfish, ThinksUntilItIsStopped) {
  const auto player = make_player("stockfish");
  player->begin_game(1);
  std::stop_source stop;
  const ThinkRequest request{.infinite = true, .stop = stop.get_token(), .report = [&stop](const Thought& thought) {
                               if (thought.depth >= 5) stop.request_stop();
                             }};
  EXPECT_TRUE(is_legal(start_position(), player->think({}, request).move));
}

}  // namespace
}  // namespace tandem::chess
