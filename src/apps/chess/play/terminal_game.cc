#include "apps/chess/play/terminal_game.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <ctime>
#include <vector>

#include "apps/chess/pgn_file.h"
#include "apps/chess/play/game_words.h"
#include "base/errors.h"
#include "base/printable.h"
#include "world/chess/fen.h"

namespace tandem::chess {
namespace {

constexpr size_t kWidth = 80;

std::string side_name(Side side) { return side == Side::kWhite ? "White" : "Black"; }

// "12." or "12..."
std::string move_number(const Position& position) {
  return fmt::format("{}{}", position.fullmove_number, position.side_to_move == Side::kWhite ? "." : "...");
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm local = {};
  localtime_r(&now, &local);
  return fmt::format("{:04}.{:02}.{:02}", local.tm_year + 1900, local.tm_mon + 1, local.tm_mday);
}

}  // namespace

TerminalGame::TerminalGame(const PlayerChoice& choice, TerminalSettings settings, Console& console)
    : choice_(choice), settings_(std::move(settings)), console_(console) {}

int TerminalGame::play() {
  try {
    start_player();
    begin();
    while (!console_.signal_number() && !console_.closed()) {
      if (!ending_ && game_.position().side_to_move != settings_.person) {
        let_player_move();
        continue;
      }
      const std::optional<std::string> line = console_.line(prompt());
      if (!line || !obey(read_typed_line(*line))) break;
    }
  } catch (const Error&) {
    leave();
    throw;
  }
  leave();
  if (console_.signal_number() == SIGINT) return static_cast<int>(ExitCode::kInterrupted);
  return static_cast<int>(console_.signal_number() ? ExitCode::kTerminated : ExitCode::kOk);
}

void TerminalGame::begin() {
  if (console_.signal_number()) return;
  game_ = Game(settings_.start);
  ending_.reset();
  say(fmt::format("You play {} against {} (seed {}). Type a move, such as e4 or Nf3, or `help`.",
                  side_name(settings_.person), opponent_, settings_.seed));
  for (const std::string& note : player_->notes()) say("note: " + note);
  show_board();
  if (const GameResult result = game_.result(settings_.draws); result.over())
    end(result.winner, why_over(result.end, settings_.draws));
}

void TerminalGame::start_player() {
  if (!player_) player_ = choice_.make({.depth = choice_.depth});
  try {
    console_.do_stoppable([this](const std::stop_token& stop) { player_->begin_game(settings_.seed, stop); });
  } catch (const PlayerFault& fault) {
    if (fault.kind() != PlayerFault::Kind::kStopped) throw;
  }
  opponent_ = player_->name();
}

// In the course of a game: where it can't be started, that is explained, and the game is over if it was not.
bool TerminalGame::restart_player() {
  try {
    start_player();
    return !console_.signal_number();
  } catch (const Error& error) {
    console_.write(printable_lines(error.render()));
    player_ = nullptr;
    if (!ending_) end(settings_.person, "the other side failed");
    return false;
  }
}

bool TerminalGame::obey(const TypedLine& typed) {
  switch (typed.command) {
    case TypedCommand::kNone:
      break;
    case TypedCommand::kMove:
      make_typed_move(typed);
      break;
    case TypedCommand::kHelp:
      console_.write(kTypedHelp);
      break;
    case TypedCommand::kMoves:
      list_moves();
      break;
    case TypedCommand::kUndo:
      undo();
      break;
    case TypedCommand::kDraw:
      claim_draw();
      break;
    case TypedCommand::kResign:
      if (!refuse_if_over()) end(other(settings_.person), fmt::format("{} resigned", side_name(settings_.person)));
      break;
    case TypedCommand::kFlip:
      settings_.style.bottom = other(settings_.style.bottom);
      show_board();
      break;
    case TypedCommand::kFen:
      say(fen_of(game_.position()));
      break;
    case TypedCommand::kPgn:
      if (typed.rest.empty())
        console_.write(pgn_of(record()));
      else
        add_to(typed.rest);
      break;
    case TypedCommand::kNew:
      begin_another(typed.rest);
      break;
    case TypedCommand::kQuit:
      return false;
  }
  return true;
}

bool TerminalGame::refuse_if_over() {
  if (ending_) explain("this game is over", ending_->why, "type `new` for another one, `undo`, or `quit`");
  return ending_.has_value();
}

void TerminalGame::make_typed_move(const TypedLine& typed) {
  if (refuse_if_over()) return;
  const std::string text = typed.rest.empty() ? typed.word : typed.word + " " + typed.rest;
  const MoveReading reading = read_typed_move(game_.position(), text);
  if (reading.good()) {
    say(fmt::format("You play {} {}", move_number(game_.position()), san_of(game_.position(), reading.move)));
    return make(reading.move);
  }
  const std::string near = reading.fault == MoveReading::Fault::kUnreadable ? nearest_command(typed.word) : "";
  const std::string shown = printable(text.substr(0, kWidth / 2));
  explain(fmt::format("\"{}\" can't be done", shown), reading.why,
          near.empty() ? "type another move; `moves` lists all, `help` tells what else there is"
                       : fmt::format("did you mean `{}`? `help` tells what can be typed", near));
}

void TerminalGame::make(Move move) {
  game_.play(move);
  const GameResult result = game_.result(settings_.draws);
  if (!result.over()) return;
  show_board();
  end(result.winner, why_over(result.end, settings_.draws));
}

void TerminalGame::let_player_move() {
  try {
    Thought thought;
    console_.do_stoppable([&](const std::stop_token& stop) { thought = player_->think(game_, {.stop = stop}); });
    if (console_.signal_number()) return;
    say(fmt::format("{} plays {} {}{}", opponent_, move_number(game_.position()),
                    san_of(game_.position(), thought.move), score_in_words(thought)));
    make(thought.move);
    if (!ending_) show_board();
  } catch (const PlayerFault& fault) {
    console_.write(printable_lines(fault.render()));
    player_ = nullptr;  // the next game begins with another one
    end(settings_.person, "the other side failed");
  }
}

void TerminalGame::undo() {
  // Back to where the person was to move. An end that is not on the board (resigned, claimed) was no move.
  const bool persons_turn = game_.position().side_to_move == settings_.person;
  const bool ended_without_move = ending_ && !game_.result(settings_.draws).over();
  const int count = !persons_turn ? 1 : ended_without_move ? 0 : 2;
  if (count > static_cast<int>(game_.moves().size())) {
    explain("there is no move of yours to take back", "the game has just begun", "make a move");
    return;
  }
  if (!player_ && !restart_player()) return;  // it had failed
  game_.undo(count);
  ending_.reset();
  show_board();
}

void TerminalGame::claim_draw() {
  if (refuse_if_over()) return;
  if (game_.can_claim_threefold_repetition()) return end(std::nullopt, "claimed: three times the same position");
  if (game_.can_claim_fifty_moves())
    return end(std::nullopt, "claimed: 50 moves of each side without capture or pawn move");
  explain(
      "there is no draw to claim",
      fmt::format("this position was there {} of 3 times, and {} of 50 moves were made without capture or pawn move",
                  game_.repetitions(), game_.position().halfmove_clock / 2),
      "play on, or `resign`; players do not answer offers");
}

void TerminalGame::list_moves() {
  if (refuse_if_over()) return;
  MoveList list;
  legal_moves(game_.position(), list);
  std::vector<std::string> moves;
  for (const Move move : list) moves.push_back(san_of(game_.position(), move));
  std::ranges::sort(moves);
  std::string line = " ";
  for (const std::string& move : moves) {
    if (line.size() + 1 + move.size() > kWidth) {
      say(line);
      line = " ";
    }
    line += " " + move;
  }
  say(line);
}

void TerminalGame::begin_another(const std::string& side) {
  if (!side.empty() && side != "white" && side != "black") {
    explain(fmt::format("`new {}` is not known", printable(side.substr(0, kWidth / 2))), "it takes a side, or nothing",
            "type `new white`, `new black`, or `new` for the same side");
    return;
  }
  ++settings_.seed;
  if (!restart_player()) {
    --settings_.seed;
    return;
  }
  leave();
  if (!side.empty()) settings_.person = side == "white" ? Side::kWhite : Side::kBlack;
  if (!side.empty()) settings_.style.bottom = settings_.person;
  begin();
}

void TerminalGame::end(std::optional<Side> winner, std::string why) {
  ending_ = Ending{winner, std::move(why)};
  const std::string who = !winner                       ? "Draw"
                          : *winner == settings_.person ? "You win"
                                                        : fmt::format("{} wins", opponent_);
  say(fmt::format("{}, {}: {}.", who, record().result, ending_->why));
}

void TerminalGame::show_board() {
  const Move last = game_.moves().empty() ? Move() : game_.moves().back();
  console_.write("\n" + board_text(game_.position(), last, settings_.style) + "\n");
}

void TerminalGame::say(std::string_view line) { console_.write(printable(line) + "\n"); }

void TerminalGame::explain(const std::string& what, const std::string& why, const std::string& todo) {
  console_.write(printable_lines(ConfigError(what, why, todo).render()));
}

std::string TerminalGame::prompt() const {
  if (ending_) return "(over) ";
  return fmt::format("{} {} ", side_name(settings_.person), move_number(game_.position()));
}

PgnGame TerminalGame::record() const {
  PgnGame record;
  record.game = game_;
  if (ending_) record.result = !ending_->winner ? "1/2-1/2" : *ending_->winner == Side::kWhite ? "1-0" : "0-1";
  const bool white = settings_.person == Side::kWhite;
  for (const auto& [tag, value] :
       std::vector<std::pair<std::string, std::string>>{{"Event", "tandem play"},
                                                        {"Site", "?"},
                                                        {"Date", today()},
                                                        {"Round", "-"},
                                                        {"White", white ? "Player" : opponent_},
                                                        {"Black", white ? opponent_ : "Player"},
                                                        {"Termination", ending_ ? ending_->why : "unterminated"}})
    record.set_tag(tag, value);
  return record;
}

void TerminalGame::add_to(const std::string& file) {
  try {
    PgnFile(file).add(pgn_of(record()));
    say(fmt::format("added to {}", file));
  } catch (const Error& error) {
    console_.write(printable_lines(error.render()));
  }
}

void TerminalGame::leave() {
  if (settings_.pgn_file.empty() || game_.moves().empty()) return;
  const std::string game = pgn_of(record());
  try {
    PgnFile(settings_.pgn_file).add(game);
  } catch (const Error&) {
    console_.write("\n" + game);  // so that it is not lost
    throw;
  }
}

}  // namespace tandem::chess
