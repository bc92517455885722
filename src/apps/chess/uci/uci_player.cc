#include "apps/chess/uci/uci_player.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>

#include "apps/chess/uci/uci_words.h"
#include "base/clock.h"
#include "base/printable.h"
#include "config/spelling.h"
#include "world/chess/fen.h"
#include "world/chess/notation.h"

namespace tandem::chess {
namespace {

constexpr size_t kLongestName = 60, kLongestQuote = 80, kMostOptions = 1000;

std::string said(std::string_view text) { return fmt::format("\"{}\"", beginning_of(text, kLongestQuote)); }

double seconds(std::chrono::milliseconds time) { return static_cast<double>(time.count()) / 1000; }

// How long the engine may take for this request, before it is late.
double time_for(const ThinkRequest& request, Side mover, const UciPatience& patience) {
  if (request.infinite) return kForEver;
  if (request.move_time) return seconds(*request.move_time) + patience.late;
  if (request.clocks)
    return seconds(mover == Side::kWhite ? request.clocks->white : request.clocks->black) + patience.late;
  return patience.move;
}

// While it lives, a stop makes `fd` readable; before that nothing does.
class StopWakes {
 public:
  StopWakes(int fd, const std::stop_token& stop) : callback_((empty(fd), stop), [fd] { eventfd_write(fd, 1); }) {}

 private:
  static void empty(int fd) {
    eventfd_t seen;
    eventfd_read(fd, &seen);
  }
  std::stop_callback<std::function<void()>> callback_;
};

// Its line as far as it can be followed; no move where not even the first can be.
Thought thought_of(const Game& game, const EngineInfo& info) {
  Thought thought{.score = info.score, .nodes = info.nodes.value_or(0)};
  thought.depth = static_cast<int>(std::clamp<int64_t>(info.depth.value_or(0), 0, 1000));
  Position position = game.position();
  for (const std::string& word : info.line) {
    const MoveReading next = read_uci(position, word);
    if (!next.good()) break;
    thought.line.push_back(next.move);
    make_move(position, next.move);
  }
  if (!thought.line.empty()) thought.move = thought.line.front();
  return thought;
}

}  // namespace

std::string position_command(const Game& game) {
  const std::string start = fen_of(game.start());
  std::string line = start == kStartFen ? "position startpos" : "position fen " + start;
  if (!game.moves().empty()) line += " moves";
  for (const Move move : game.moves()) line += ' ' + uci_of(move);
  return line;
}

std::string go_command(const ThinkRequest& request) {
  std::string line = "go";
  if (request.clocks) {
    const Clocks& c = *request.clocks;
    line += fmt::format(" wtime {} btime {} winc {} binc {}", c.white.count(), c.black.count(),
                        c.white_increment.count(), c.black_increment.count());
    if (c.moves_to_go) line += fmt::format(" movestogo {}", *c.moves_to_go);
  }
  if (request.move_time) line += fmt::format(" movetime {}", request.move_time->count());
  if (request.nodes) line += fmt::format(" nodes {}", *request.nodes);
  if (request.depth) line += fmt::format(" depth {}", *request.depth);
  if (request.infinite) line += " infinite";
  return line;
}

UciPlayer::UciPlayer(UciSettings settings) : settings_(std::move(settings)) {
  wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_fd_ < 0) throw IoError("cannot make an event", errno, "close other programs, or raise `ulimit -n`");
}

UciPlayer::~UciPlayer() {
  if (engine_) engine_->quit(monotonic_seconds() + settings_.patience.quit);
  close(wake_fd_);
}

std::string UciPlayer::name() const {
  std::string name = engine_name_.empty() ? settings_.called : engine_name_;
  if (engine_name_.empty()) return name;
  if (const auto elo = elo_ ? elo_ : settings_.elo) name += fmt::format(", UCI_Elo {}", *elo);
  if (settings_.nodes) name += fmt::format(", {} nodes", *settings_.nodes);
  if (settings_.depth) name += fmt::format(", depth {}", *settings_.depth);
  if (settings_.move_time) name += fmt::format(", {} ms", settings_.move_time->count());
  return name;
}

std::optional<double> UciPlayer::promised_elo() const {
  if (!elo_ || !engine_name_.starts_with("Stockfish")) return std::nullopt;
  return static_cast<double>(*elo_);
}

void UciPlayer::fail(PlayerFault::Kind kind, const std::string& what, std::string why) {
  if (!thinking_of_.empty()) why += fmt::format("; it was to move in {}", thinking_of_);
  if (const std::string words = engine_->last_words(); !words.empty())
    why += fmt::format("; its last words on stderr: {}", said(words));
  const std::string who = name();
  engine_.reset();
  const bool never = kind == PlayerFault::Kind::kNoEngine;
  throw PlayerFault(kind, fmt::format("{} {}", who, what), std::move(why),
                    never
                        ? fmt::format("name a program that speaks UCI; `echo uci | {}` shows what this one says",
                                      printable(settings_.program.string()))
                        : "it lost this game and is started again for the next one; look at the engine if it stays so");
}

void UciPlayer::fail_by(EngineProcess::Got got, const std::string& late) {
  using Kind = PlayerFault::Kind;
  constexpr EngineBounds bounds;
  if (got == EngineProcess::Got::kEnded) fail(Kind::kCrashed, "crashed", engine_->ending());
  if (got == EngineProcess::Got::kFlood)
    fail(Kind::kFlood, "says too much",
         fmt::format("a line above {} KiB, or {}, is no answer", bounds.longest_line >> 10,
                     thinking_of_.empty() ? fmt::format("words before readyok above {} MiB", bounds.most_greeting >> 20)
                                          : fmt::format("an answer above {} MiB and {} MiB for each second",
                                                        bounds.most_output >> 20, bounds.output_a_second >> 20)));
  fail(Kind::kSilent, "is silent", late);
}

void UciPlayer::send(const std::string& line, double deadline) {
  const EngineProcess::Sent sent = engine_->send(line, deadline, wake_fd_, settings_.patience.stop);
  if (sent == EngineProcess::Sent::kEnded) fail_by(EngineProcess::Got::kEnded, "");
  if (sent == EngineProcess::Sent::kLate)
    fail(PlayerFault::Kind::kSilent, "does not listen", "it has not read what it was told");
}

// It was not ready yet, so nobody knows what it would answer next.
void UciPlayer::stop_starting() {
  const std::string who = name();
  engine_.reset();
  throw PlayerFault(PlayerFault::Kind::kStopped, fmt::format("{} was not ready yet", who), "it was told to stop",
                    "start it again");
}

void UciPlayer::prepare_game(uint64_t, const std::stop_token& stop) {
  thinking_of_.clear();
  const StopWakes wakes(wake_fd_, stop);
  if (!engine_) start();
  send("ucinewgame", monotonic_seconds() + settings_.patience.ready);
  make_ready();
}

void UciPlayer::start() {
  engine_ = std::make_unique<EngineProcess>(settings_.program, settings_.arguments);
  notes_.clear();
  read_greeting();
  try {
    set_options();
  } catch (const ConfigError&) {
    engine_.reset();
    throw;
  }
  make_ready();
}

// `first`: the first line in which there were words.
void UciPlayer::fail_greeting(EngineProcess::Got got, const std::string& first) {
  std::string why = first.empty() ? "it said nothing" : fmt::format("it said {}", said(first));
  if (got == EngineProcess::Got::kEnded)
    why += ", and " + engine_->ending();
  else if (got == EngineProcess::Got::kFlood)
    why = (first.empty() ? "it said no line with words" : why) + ", and much more, but no uciok";
  else
    why += fmt::format(", but no uciok within {:g} s", settings_.patience.handshake);
  fail(PlayerFault::Kind::kNoEngine, "does not speak UCI", why);
}

// Its name counts once it has shown that it speaks UCI: until then it is called as the user called it.
void UciPlayer::read_greeting() {
  options_.clear();
  std::string line, first, its_name;
  const double deadline = monotonic_seconds() + settings_.patience.handshake;
  engine_->begin_greeting();
  engine_->send("uci", deadline, wake_fd_);  // whether it took it, its answer shows
  for (;;) {
    const EngineProcess::Got got = engine_->read_line(line, deadline, wake_fd_);
    if (got == EngineProcess::Got::kWoken) stop_starting();
    if (got != EngineProcess::Got::kLine) fail_greeting(got, first);
    if (first.empty() && line.find_first_not_of(" \t") != line.npos) first = line;
    EngineLine read = read_engine_line(line);
    if (std::holds_alternative<EngineUciOk>(read)) break;
    if (auto* const option = std::get_if<EngineOption>(&read); option && options_.size() < kMostOptions)
      options_.push_back(std::move(*option));
    if (const auto* const id = std::get_if<EngineId>(&read); id && !id->is_author && !id->text.empty())
      its_name = printable(id->text.substr(0, kLongestName));
  }
  engine_name_ = its_name.empty() ? printable(settings_.program.filename().string()) : its_name;
}

std::string UciPlayer::set_option(const std::string& name, const std::string& value) {
  const EngineOption* const option = find_option(options_, name);
  if (!option) {
    std::vector<std::string> names;
    for (const EngineOption& o : options_) names.push_back(printable(o.name));
    const std::string near = nearest_word(name, names);
    throw ConfigError(fmt::format("{} has no option {}", engine_name_, printable(name)),
                      fmt::format("it lists {} options for `uci`, and this is none of them", options_.size()),
                      near.empty() ? "leave it out" : fmt::format("did you mean {}?", near));
  }
  const FittedOption fitted = fit_option(*option, value);
  if (!fitted.trouble.empty())
    throw ConfigError(fmt::format("{} does not take {} = {}", engine_name_, printable(name), printable(value)),
                      fitted.trouble, "give another value");
  if (!fitted.note.empty()) notes_.push_back(fmt::format("{}: {}", engine_name_, fitted.note));
  const bool button = option->type == EngineOption::Type::kButton;
  send(button ? fmt::format("setoption name {}", option->name)
              : fmt::format("setoption name {} value {}", option->name, fitted.value),
       monotonic_seconds() + settings_.patience.ready);
  return fitted.value;
}

void UciPlayer::set_options() {
  for (const auto& [name, value] : settings_.options) set_option(name, value);
  if (!settings_.elo) return;
  if (!find_option(options_, "UCI_LimitStrength") || !find_option(options_, "UCI_Elo"))
    throw ConfigError(fmt::format("{} can't be set to an Elo", engine_name_),
                      "it has no options UCI_LimitStrength and UCI_Elo", "limit its nodes instead: nodes=1000");
  set_option("UCI_LimitStrength", "true");
  elo_ = std::stoll(set_option("UCI_Elo", std::to_string(*settings_.elo)));
}

void UciPlayer::make_ready() {
  const double deadline = monotonic_seconds() + settings_.patience.ready;
  engine_->begin_greeting();
  send("isready", deadline);
  std::string line;
  for (;;) {
    const EngineProcess::Got got = engine_->read_line(line, deadline, wake_fd_);
    if (got == EngineProcess::Got::kWoken) stop_starting();
    if (got != EngineProcess::Got::kLine)
      fail_by(got, fmt::format("no readyok within {:g} s", settings_.patience.ready));
    if (std::holds_alternative<EngineReadyOk>(read_engine_line(line))) return;
  }
}

ThinkRequest UciPlayer::with_own_limits(const ThinkRequest& request) const {
  ThinkRequest merged{.stop = request.stop, .report = request.report};
  if (settings_.has_limits()) {
    merged.move_time = settings_.move_time, merged.nodes = settings_.nodes, merged.depth = settings_.depth;
    return merged;
  }
  merged = request;
  if (!request.move_time && !request.nodes && !request.depth && !request.clocks && !request.infinite)
    merged.move_time = kUsualMoveTime;
  return merged;
}

std::optional<std::chrono::milliseconds> UciPlayer::move_time(const ThinkRequest& request) const {
  return with_own_limits(request).move_time;
}

// A second bestmove for one `go` would be taken as the answer to the next one. Whoever was told to stop may have said
// its move at that moment, and another one for the stop: that is passed over.
void UciPlayer::drop_what_nobody_asked_for() {
  engine_->begin_answer();
  for (std::string line;;) {
    const EngineProcess::Got got = engine_->read_line(line, monotonic_seconds());
    if (got == EngineProcess::Got::kLate) return;
    if (got != EngineProcess::Got::kLine) fail_by(got, "");
    const EngineLine read = read_engine_line(line);
    if (const auto* const best = std::get_if<EngineBestMove>(&read); best && !stopped_)
      fail(PlayerFault::Kind::kIllegalMove, fmt::format("said bestmove {} that nobody had asked for", said(best->move)),
           "each `go` has one answer");
  }
}

Thought UciPlayer::answer(const Game& game, const std::string& best, const EngineInfo& info) {
  const MoveReading reading = read_uci(game.position(), best);
  if (!reading.good())
    fail(PlayerFault::Kind::kIllegalMove, fmt::format("played {}, which is no legal move", said(best)), reading.why);
  Thought thought = thought_of(game, info);
  if (thought.move == reading.move) return thought;
  return {.move = reading.move, .line = {reading.move}};  // what was told is about another move
}

Thought UciPlayer::think(const Game& game, const ThinkRequest& asked) {
  const ThinkRequest request = with_own_limits(asked);
  const UciPatience& patience = settings_.patience;
  if (!engine_) begin_game(0, request.stop);  // think() after a fault, without a new game
  thinking_of_ = fen_of(game.position());
  drop_what_nobody_asked_for();
  const double wait = time_for(request, game.position().side_to_move, patience);
  double deadline = monotonic_seconds() + wait;
  std::string late = fmt::format("no bestmove within {:g} s", wait);
  engine_->begin_answer();
  const StopWakes wakes(wake_fd_, request.stop);
  send(position_command(game), deadline);
  send(go_command(request), deadline);
  EngineInfo last;
  std::string line;
  for (stopped_ = false;;) {
    const EngineProcess::Got got = engine_->read_line(line, deadline, stopped_ ? -1 : wake_fd_);
    if (got == EngineProcess::Got::kWoken) {
      stopped_ = true;
      deadline = monotonic_seconds() + patience.stop;
      late = fmt::format("no bestmove within {:g} s after stop", patience.stop);
      send("stop", deadline);
      continue;
    }
    if (got != EngineProcess::Got::kLine) fail_by(got, late);
    EngineLine read = read_engine_line(line);
    if (const auto* const best = std::get_if<EngineBestMove>(&read)) return answer(game, best->move, last);
    auto* const info = std::get_if<EngineInfo>(&read);
    if (!info || info->line.empty() || info->multipv.value_or(1) != 1) continue;
    last = std::move(*info);
    if (!request.report) continue;
    if (const Thought thought = thought_of(game, last); thought.move) request.report(thought);
  }
}

}  // namespace tandem::chess
