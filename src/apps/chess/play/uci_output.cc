#include "apps/chess/play/uci_output.h"

#include <fmt/format.h>

#include "base/printable.h"
#include "base/write_whole.h"
#include "world/chess/notation.h"

namespace tandem::chess {

void UciOutput::line(std::string_view text) {
  std::string whole(text);
  whole += '\n';
  const std::lock_guard lock(mutex_);
  if (!closed_ && write_whole(fd_, whole) != 0) closed_ = true;
}

void UciOutput::say(std::string_view text) { line("info string " + printable(text)); }

std::string info_line(const Thought& thought, std::chrono::nanoseconds since_start) {
  std::string text = "info";
  if (thought.depth > 0) text += fmt::format(" depth {}", thought.depth);
  if (thought.score) {
    const bool mate = thought.score->mate_in.has_value();
    text +=
        fmt::format(" score {} {}", mate ? "mate" : "cp", mate ? *thought.score->mate_in : thought.score->centipawns);
  }
  const double seconds = std::chrono::duration<double>(since_start).count();
  if (thought.nodes > 0) {
    text += fmt::format(" nodes {}", thought.nodes);
    if (seconds > 0) text += fmt::format(" nps {:.0f}", static_cast<double>(thought.nodes) / seconds);
  }
  text += fmt::format(" time {:.0f}", seconds * 1000);
  if (!thought.line.empty()) text += " pv";
  for (const Move move : thought.line) text += " " + uci_of(move);
  return text;
}

std::string bestmove_line(Move move) { return move ? "bestmove " + uci_of(move) : "bestmove (none)"; }

}  // namespace tandem::chess
