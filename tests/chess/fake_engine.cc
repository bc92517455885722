// tests/chess/fake_engine.cc -- a UCI engine that plays a legal move, and goes wrong where a test asks for it.
//
// By the end of its own name (a link to it is enough), before any option can be set:
//   ...-mute      reads, and says nothing           ...-dies      ends with status 3 at once
//   ...-chatters  answers, but never says uciok     ...-floods    a line without end as its greeting
//   ...-endless   words in lines without end        ...-blank     empty lines without end
//   ...-boasts    options without end, each with thousands of choices, under another's name
//   ...-unready   says uciok, never readyok         ...-raves     lines without end for isready
//   ...-sleeps    reads nothing any more once it was told ucinewgame
// By its option Fault, "what" or "what N": in its Nth move (1) of a process
//   crash  ends by SIGSEGV                exit   ends with status 3
//   silent answers nothing, but reads     deaf   does nothing at all, not even read
//   illegal "bestmove e2e5"               none   "bestmove (none)"
//   flood  info lines without end         long   a line without end         chat   info lines, one by one
//   stderr 200 kB on stderr before each move; it plays on
//   late   it thinks until it is told to stop       stubborn   the same, and does not stop
//   twice  it says its move twice                  anxious    thinks until stop, and then says its move twice
//   slow   100 ms pass before it answers
//   linger it plays, but does not end when it is told to quit or its input ends
// Marker: a file; the fault happens only if it is not there, and makes it: in the first process that gets so far.
// Log: a file to which every line is added that it is told from then on.
// `--called NAME` on its command line: the name that it says.
// With Last = true it plays the last of its legal moves, in their order as text, not the first.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "world/chess/fen.h"
#include "world/chess/notation.h"

namespace {

using namespace tandem::chess;

struct Fake {
  std::string fault, marker, log;
  int at = 1, moves = 0;
  bool last = false;
  Position position = start_position();
};

void say(const std::string& text) { std::cout << text << std::endl; }

[[noreturn]] void wait_for_ever() {
  for (;;) pause();
}

bool wants_fault(const Fake& fake) {
  if (fake.fault.empty() || fake.moves != fake.at) return false;
  if (fake.marker.empty()) return true;
  if (std::ifstream(fake.marker).good()) return false;
  std::ofstream(fake.marker) << fake.fault;
  return true;
}

std::string chosen(const Fake& fake) {
  MoveList list;
  legal_moves(fake.position, list);
  std::vector<std::string> moves;
  for (const Move move : list) moves.push_back(uci_of(move));
  if (moves.empty()) return "(none)";
  std::ranges::sort(moves);
  return fake.last ? moves.back() : moves.front();
}

void read_position(Fake& fake, std::istringstream& words) {
  std::string word, fen;
  words >> word;
  while (word == "fen" && words >> word && word != "moves") {
    fen += (fen.empty() ? "" : " ") + word;
    word = "fen";
  }
  fake.position = fen.empty() ? start_position() : position_of_fen(fen);
  if (word == "startpos") words >> word;
  while (words >> word) make_move(fake.position, read_uci(fake.position, word).move);
}

void read_option(Fake& fake, std::istringstream& words) {
  std::string word, name, value;
  words >> word >> name >> word;
  std::getline(words >> std::ws, value);
  if (name == "Fault") {
    std::istringstream parts(value);
    parts >> fake.fault >> fake.at;
  }
  if (name == "Marker") fake.marker = value;
  if (name == "Log") fake.log = value;
  if (name == "Last") fake.last = value == "true";
}

// The next line that is not passed over; the program ends with its input.
std::string read_line() {
  std::string line;
  if (!std::getline(std::cin, line)) exit(0);
  return line;
}

void misbehave(const Fake& fake) {
  if (fake.fault == "crash") {
    signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
  }
  if (fake.fault == "exit") {
    std::cerr << "I have had enough" << std::endl;
    exit(3);
  }
  if (fake.fault == "deaf") wait_for_ever();
  if (fake.fault == "silent") {
    for (;;) read_line();
  }
  if (fake.fault == "flood") {
    for (;;) std::cout << "info depth 1 string still here\n";
  }
  if (fake.fault == "chat") {
    for (;;) say("info depth 1 string still here");
  }
  if (fake.fault == "long") {
    for (;;) std::cout << "info " << std::flush;
  }
}

void think_for(std::chrono::milliseconds time) {
  const auto until = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < until) continue;
}

void go(Fake& fake) {
  ++fake.moves;
  const bool fault = wants_fault(fake);
  if (fault) misbehave(fake);
  if (fake.fault == "stderr") std::cerr << std::string(200'000, 'x') << std::endl;
  if (fault && fake.fault == "slow") think_for(std::chrono::milliseconds(100));
  if (fault && (fake.fault == "late" || fake.fault == "stubborn" || fake.fault == "anxious")) {
    say("info depth 1 score cp 12 nodes 1 pv " + chosen(fake));
    while (read_line() != "stop" || fake.fault == "stubborn") {
    }
  }
  if (fault && fake.fault == "illegal") return say("bestmove e2e5");
  if (fault && fake.fault == "none") return say("bestmove (none)");
  say("info depth 3 seldepth 4 multipv 1 score cp 25 nodes 77 nps 1000 pv " + chosen(fake));
  const bool twice = fault && (fake.fault == "twice" || fake.fault == "anxious");
  say("bestmove " + chosen(fake) + (twice ? "\nbestmove " + chosen(fake) : ""));
}

// Greetings that never end; the program ends with its output.
void greet_for_ever(const std::string& name) {
  std::string choices;
  for (int i = 0; i < 6000; ++i) choices += " var c" + std::to_string(i);
  if (name.ends_with("-boasts")) say("id name Stockfish 99");
  for (int64_t i = 0; std::cout.good(); ++i) {
    if (name.ends_with("-floods")) std::cout << "Welcome! " << std::flush;
    if (name.ends_with("-endless")) std::cout << "Welcome, number " << i << "\n";
    if (name.ends_with("-blank")) std::cout << "\n";
    if (name.ends_with("-boasts")) std::cout << "option name O" << i << " type combo" << choices << "\n";
  }
}

void greet(const std::string& called) {
  say("id name " + called);
  say("id author nobody");
  for (const char* const option :
       {"Fault type string default", "Marker type string default", "Log type string default",
        "Last type check default false", "Level type spin default 5 min 1 max 9",
        "UCI_LimitStrength type check default false", "UCI_Elo type spin default 1500 min 1000 max 2000"})
    say(std::string("option name ") + option);
  say("uciok");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argv[0];
  if (name.ends_with("-dies")) return 3;
  for (const char* const greeting : {"-floods", "-endless", "-blank", "-boasts"})
    if (name.ends_with(greeting)) greet_for_ever(name);
  Fake fake;
  for (std::string line; std::getline(std::cin, line);) {
    if (name.ends_with("-mute")) continue;
    if (name.ends_with("-chatters")) {
      say("You said " + line + ", did you not?");
      continue;
    }
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (!fake.log.empty()) std::ofstream(fake.log, std::ios::app) << line << "\n";
    if (word == "uci") greet(argc == 3 && std::string(argv[1]) == "--called" ? argv[2] : "Fake 1.0");
    if (word == "ucinewgame" && name.ends_with("-sleeps")) {
      say("readyok");  // to the isready that follows
      wait_for_ever();
    }
    if (word == "isready" && name.ends_with("-raves"))
      for (;;) say("info string loading");
    if (word == "isready" && !name.ends_with("-unready")) say("readyok");
    if (word == "setoption") read_option(fake, words);
    if (word == "position") read_position(fake, words);
    if (word == "go") go(fake);
    if (word == "quit" && fake.fault != "linger") return 0;
  }
  if (fake.fault == "linger") wait_for_ever();
  return 0;
}
