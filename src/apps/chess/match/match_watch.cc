#include "apps/chess/match/match_watch.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>

#include "base/clock.h"
#include "base/errors.h"
#include "base/printable.h"
#include "command/progress_on_stderr.h"
#include "telemetry/human.h"

namespace tandem::chess {

MatchWatch::MatchWatch(const Output& output, MatchReport& report, MatchPgn& pgn)
    : output_(output),
      report_(report),
      pgn_(pgn),
      began_(monotonic_seconds()),
      display_(progress_on_stderr(output), began_) {}

int MatchWatch::run(MatchRunner& runner, const SignalQueue& signals) {
  while (!runner.over()) {
    pollfd waits[] = {{runner.ready_fd(), POLLIN, 0}, {signals.fd(), POLLIN, 0}};
    poll(waits, 2, 100);
    while (const std::optional<int> signal = signals.next()) act_on(*signal, runner);
    take(runner);
    if (error_) runner.break_off();
    show();
  }
  take(runner);
  keep([this] { pgn_.add_waiting(); });
  if (const std::exception_ptr error = runner.error()) end_by(error);
  display_.clear();
  report_.seconds = monotonic_seconds() - began_;
  return code_;
}

void MatchWatch::act_on(int signal, MatchRunner& runner) {
  if (signal == SIGTSTP) {
    display_.clear();
    raise(SIGSTOP);
  }
  if (signal != SIGINT && signal != SIGTERM && signal != SIGHUP) return;
  code_ = static_cast<int>(signal == SIGINT ? ExitCode::kInterrupted : ExitCode::kTerminated);
  if (signal == SIGINT && report_.stopped.empty() && runner.playing() > 0) {
    say(fmt::format("no more games; {} under way are played to their end. Ctrl-C again breaks them off",
                    runner.playing()));
    runner.begin_no_more();
  } else {
    runner.break_off();
  }
  report_.stopped = signal == SIGINT ? "Ctrl-C" : "it was told to end";
}

void MatchWatch::take(MatchRunner& runner) {
  for (FinishedGame& game : runner.take()) {
    report_.add(game);
    tell(game);
    if (rule_.add(game) && report_.stopped.empty()) {
      const std::string& who = rule_.first_failed() ? report_.first.name : report_.second.name;
      report_.stopped = fmt::format("{} failed in {} games in a row", who, FailureRule::kInARow);
      code_ = static_cast<int>(ExitCode::kFailed);
      runner.break_off();
    }
    keep([&] { pgn_.add(std::move(game)); });
  }
}

// Once a game could not be written, no other is.
void MatchWatch::keep(const std::function<void()>& write) {
  if (error_) return;
  try {
    write();
  } catch (const IoError&) {
    end_by(std::current_exception());
  }
}

void MatchWatch::end_by(std::exception_ptr error) {
  if (error_) return;
  error_ = std::move(error);
  try {
    std::rethrow_exception(error_);
  } catch (const std::exception& what) {
    report_.stopped = what.what();
  }
}

void MatchWatch::tell(const FinishedGame& game) {
  if (game.fault) {
    say(fmt::format("game {}: {} lost it: {}; {}", game.number + 1,
                    game.fault->side == Side::kWhite ? "White" : "Black", game.fault->what, game.fault->why));
  } else if (output_.verbose() && !game.broken_off) {
    say(fmt::format("game {}: {} after {} half-moves, {}", game.number + 1, game.result_text(),
                    game.game.moves().size(), game.ending()));
  }
}

void MatchWatch::say(const std::string& line) {
  if (!output_.quiet()) display_.say(printable(line));
}

void MatchWatch::show() {
  const double now = monotonic_seconds();
  if (output_.quiet() || !display_.due(now) || report_.score.games() == 0) return;
  ProgressRow row;
  row.title = printable(fmt::format("{} - {}", report_.first.name, report_.second.name));
  row.step = report_.score.games(), row.total = report_.asked;
  row.counted = "game", row.unit = "games";
  row.fraction = static_cast<double>(row.step) / static_cast<double>(row.total);
  row.units_per_second = static_cast<double>(row.step) / (now - began_);
  row.eta_seconds = static_cast<double>(row.total - row.step) / row.units_per_second;
  row.result = score_so_far(report_);
  display_.show({.rows = {row}, .unicode = locale_is_utf8()}, now);
}

}  // namespace tandem::chess
