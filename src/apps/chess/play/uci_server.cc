#include "apps/chess/play/uci_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "apps/chess/play/time_budget.h"
#include "apps/chess/uci/uci_words.h"

namespace tandem::chess {
namespace {

constexpr size_t kLongestWordShown = 40;

// Below 2^31, as the option Seed takes it: what was drawn once can be set.
uint64_t seed_of_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(now).count()) % 2'147'483'647 + 1;
}

std::optional<int> depth_of(const GoLimits& limits) {
  if (!limits.depth && !limits.mate) return std::nullopt;
  const int64_t plies = std::min(limits.depth.value_or(std::numeric_limits<int>::max()),
                                 2 * std::clamp<int64_t>(limits.mate.value_or(10'000), 1, 10'000));
  return static_cast<int>(std::clamp<int64_t>(plies, 1, 10'000));
}

// A side of whose clock nothing is said has as much on it as the other.
GoLimits with_both_clocks(GoLimits limits) {
  if (!limits.white_time) limits.white_time = limits.black_time;
  if (!limits.black_time) limits.black_time = limits.white_time;
  return limits;
}

// What a player that manages its clock may spend of it.
Clocks clocks_of(const GoLimits& limits, std::chrono::milliseconds overhead) {
  using Ms = std::chrono::milliseconds;
  const auto bounded = [](const std::optional<int64_t>& ms) {
    return Ms(std::clamp<int64_t>(ms.value_or(0), 0, int64_t{1} << 40));
  };
  const auto clock = [&](const std::optional<int64_t>& ms) { return std::max(bounded(ms) - overhead, Ms(1)); };
  Clocks clocks{clock(limits.white_time), clock(limits.black_time), bounded(limits.white_increment),
                bounded(limits.black_increment), std::nullopt};
  if (limits.moves_to_go) clocks.moves_to_go = static_cast<int>(std::clamp<int64_t>(*limits.moves_to_go, 1, 10'000));
  return clocks;
}

}  // namespace

UciServer::UciServer(PlayerChoice choice, std::string id, int in_fd, int out_fd)
    : choice_(std::move(choice)),
      id_(std::move(id)),
      lines_(in_fd, kLongestUciLine),
      output_(out_fd),
      options_(choice_),
      search_(choice_, output_) {
  new_game();
}

void UciServer::run() {
  while (!output_.closed()) {
    switch (lines_.next(deadline_)) {
      case LineReader::Got::kLine:
        if (!obey(lines_.line())) return;
        break;
      case LineReader::Got::kTooLong:
        output_.say(fmt::format("a line of more than {} bytes was passed over", kLongestUciLine));
        break;
      case LineReader::Got::kLate:
        stop();
        break;
      case LineReader::Got::kEnd:
      case LineReader::Got::kWoken:
        return;
    }
  }
}

bool UciServer::obey(const std::string& line) {
  const UciInput input = read_uci_input(line);
  if (!input.complaint.empty())
    output_.say(fmt::format("{}: {}", beginning_of(input.complaint_about, kLongestWordShown), input.complaint));
  switch (input.command) {
    case UciCommand::kUci:
      greet();
      break;
    case UciCommand::kIsReady:
      if (search_.thinking() || search_.full())
        output_.line("readyok");
      else
        search_.ready(setup());
      break;
    case UciCommand::kSetOption:
      if (input.option.empty()) break;
      if (const std::string said = options_.set(input.option, input.value.value_or("")); !said.empty())
        output_.say(said);
      break;
    case UciCommand::kNewGame:
      new_game();
      break;
    case UciCommand::kPosition:
      if (!input.from_start && input.fen.empty()) break;
      if (const std::string fault = position_.set(line, input); !fault.empty()) output_.say(fault);
      break;
    case UciCommand::kGo:
      go(input.go);
      break;
    case UciCommand::kStop:
      stop();
      break;
    case UciCommand::kPonderHit:
      if (budget_) deadline_ = std::chrono::steady_clock::now() + *budget_;
      budget_.reset();
      search_.ponder_hit();
      break;
    case UciCommand::kQuit:
      return false;
    case UciCommand::kDebug:
    case UciCommand::kRegister:
    case UciCommand::kNone:
      break;
  }
  return true;
}

void UciServer::greet() {
  output_.line("id name " + id_);
  output_.line("id author the authors of tandem");
  for (const std::string& option : options_.declarations()) output_.line(option);
  output_.line("uciok");
}

void UciServer::stop() {
  deadline_.reset();
  search_.stop();
}

UciSetup UciServer::setup() const {
  return {options_.settings(), game_number_, options_.seed() ? static_cast<uint64_t>(options_.seed()) : seed_};
}

// `go` before the next `position` begins at the start, not in the game before.
void UciServer::new_game() {
  position_ = {};
  ++game_number_;
  seed_ = seed_of_now();
}

void UciServer::go(const GoLimits& said) {
  if (search_.thinking()) stop();  // that one is answered first
  if (search_.full()) return output_.say("go was passed over: too many wait for the player already");
  const GoLimits limits = with_both_clocks(said);
  if (!limits.search_moves.empty()) output_.say("searchmoves is not supported: all moves are looked at");
  const Game& game = position_.game();
  ThinkRequest request;
  request.infinite = limits.infinite;
  request.depth = depth_of(limits);
  if (limits.nodes) request.nodes = std::max<int64_t>(*limits.nodes, 1);
  if (limits.white_time || limits.black_time) request.clocks = clocks_of(limits, options_.overhead());
  budget_ = limits.infinite ? std::nullopt : time_for_move(limits, game.position().side_to_move, options_.overhead());
  const bool limited = request.depth || request.nodes || request.clocks || budget_ || limits.infinite;
  if (!limited && options_.nodes() > 0) request.nodes = options_.nodes();
  if (choice_.keeps_time) {
    if (limits.move_time) request.move_time = budget_;
    budget_.reset();
  }
  deadline_.reset();
  if (budget_ && !limits.ponder) {
    deadline_ = std::chrono::steady_clock::now() + *budget_;
    request.move_time = budget_;
    budget_.reset();
  }
  search_.go(setup(), game, request, limits.ponder);
}

}  // namespace tandem::chess
