// apps/chess/match/match_watch.h -- a match while it goes on: games as they end, the bar, and what signals ask for.
//
// Ctrl-C begins no more games; a second one, or SIGTERM, breaks off those under way. Everything that ended is in the
// report and in the PGN file.
#pragma once

#include <exception>
#include <functional>
#include <string>

#include "apps/chess/match/match_pgn.h"
#include "apps/chess/match/match_report.h"
#include "apps/chess/match/match_runner.h"
#include "command/output.h"
#include "launch/signal_queue.h"
#include "telemetry/progress.h"

namespace tandem::chess {

class MatchWatch {
 public:
  MatchWatch(const Output& output, MatchReport& report, MatchPgn& pgn);
  // Until the match is over; returns the exit code.
  int run(MatchRunner& runner, const SignalQueue& signals);
  // What ended the match and is no player's fault: a full disk, no room for a process. The report has the games until
  // then. Null: nothing.
  std::exception_ptr error() const { return error_; }

 private:
  void act_on(int signal, MatchRunner& runner);
  void take(MatchRunner& runner);
  void keep(const std::function<void()>& write);
  void end_by(std::exception_ptr error);
  void tell(const FinishedGame& game);
  void say(const std::string& line);
  void show();

  const Output& output_;
  MatchReport& report_;
  MatchPgn& pgn_;
  double began_;
  ProgressDisplay display_;
  FailureRule rule_;
  int code_ = 0;
  std::exception_ptr error_;
};

}  // namespace tandem::chess
