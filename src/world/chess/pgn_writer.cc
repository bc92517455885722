#include <algorithm>

#include "world/chess/notation.h"
#include "world/chess/pgn.h"

namespace tandem::chess {
namespace {

constexpr size_t kLineLength = 80;
constexpr std::string_view kRoster[] = {"Event", "Site", "Date", "Round", "White", "Black"};

std::string tag_line(std::string_view name, std::string_view value) {
  std::string line = "[" + std::string(name) + " \"";
  for (const char c : value) {
    if (c == '"' || c == '\\') line += '\\';
    line += c == '\n' || c == '\r' ? ' ' : c;
  }
  return line + "\"]\n";
}

// Words with a blank or a line break between them.
class MoveText {
 public:
  void add(std::string_view word) {
    const bool fits = length_ + 1 + word.size() < kLineLength;
    if (length_ > 0) text_ += fits ? ' ' : '\n';
    length_ = length_ > 0 && fits ? length_ + 1 + word.size() : word.size();
    text_ += word;
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
  size_t length_ = 0;  // of the last line
};

void add_comment(MoveText& lines, std::string_view comment) {
  std::string text(comment);
  std::ranges::replace(text, '}', ')');  // which would end it
  std::string word = "{";
  for (const char c : text) {
    if (c != ' ' && c != '\n' && c != '\r' && c != '\t') {
      word += c;
      continue;
    }
    if (!word.empty()) lines.add(word);
    word.clear();
  }
  lines.add(word + "}");
}

}  // namespace

std::string PgnGame::tag(std::string_view name, std::string_view otherwise) const {
  for (const auto& [key, value] : tags)
    if (key == name) return value;
  return std::string(otherwise);
}

void PgnGame::set_tag(std::string_view name, std::string_view value) {
  for (auto& [key, old] : tags)
    if (key == name) {
      old = value;
      return;
    }
  tags.emplace_back(name, value);
}

std::string pgn_of(const PgnGame& game) {
  std::string text;
  for (const std::string_view name : kRoster)
    text += tag_line(name, game.tag(name, name == "Date" ? "????.??.??" : "?"));
  text += tag_line("Result", game.result);
  for (const auto& [name, value] : game.tags)
    if (std::ranges::find(kRoster, name) == std::end(kRoster)) text += tag_line(name, value);
  const Game& played = game.game;
  if (played.start() != start_position()) text += tag_line("SetUp", "1") + tag_line("FEN", fen_of(played.start()));

  MoveText lines;
  Position position = played.start();
  bool numbered = false;  // Black's move needs no number after White's
  if (!game.preface.empty()) add_comment(lines, game.preface);
  for (size_t n = 0; n < played.moves().size(); ++n) {
    const bool white = position.side_to_move == Side::kWhite;
    if (white || !numbered) lines.add(std::to_string(position.fullmove_number) + (white ? "." : "..."));
    lines.add(san_of(position, played.moves()[n]));
    numbered = white;
    if (n < game.comments.size() && !game.comments[n].empty()) {
      add_comment(lines, game.comments[n]);
      numbered = false;
    }
    make_move(position, played.moves()[n]);
  }
  lines.add(game.result);
  return text + "\n" + lines.take() + "\n\n";
}

}  // namespace tandem::chess
