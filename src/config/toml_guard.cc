#include "config/toml_guard.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/errors.h"
#include "config/spelling.h"

namespace tandem {
namespace {

constexpr int kMostDotsOnALine = 200;
constexpr size_t kDeepestBrackets = 16;

[[noreturn]] void refuse_line(std::string_view source_name, int line, const std::string& reason,
                              const std::string& todo) {
  throw ConfigError(fmt::format("{}:{}: {}", source_name, line, reason),
                    "a recipe is TOML: `key = value` lines, texts in quotes, tables in [brackets]", todo);
}

// Line by line: what is forbidden whatever the quoting is. Keys cannot span lines, so counting dots bounds their depth:
// toml++ would nest a table a dot, and half a million of them end the stack.
void guard_line(std::string_view line, int number, std::string_view source_name) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  const auto is_control = [](char c) { return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7F; };
  if (std::any_of(line.begin(), line.end(), is_control)) {
    refuse_line(source_name, number, "this line holds control characters", "check that it is the right file");
  }
  if (!is_utf8(line))
    refuse_line(source_name, number, "this line holds bytes that are no UTF-8", "save the file as UTF-8");
  if (std::count(line.begin(), line.end(), '.') > kMostDotsOnALine) {
    refuse_line(source_name, number, fmt::format("this line has more than {} dots", kMostDotsOnALine),
                "check that it is the right file");
  }
}

// Skips strings and comments as TOML defines them, follows brackets, and knows what may not stand outside of quotes.
class TokenGuard {
 public:
  TokenGuard(std::string_view text, std::string_view source_name) : text_(text), source_name_(source_name) {}

  void run() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"' || c == '\'') {
        check_quote_may_stand_here();
        skip_string(c);
        continue;
      }
      if (c == '#') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
        continue;
      }
      if (static_cast<unsigned char>(c) >= 0x80) {
        refuse_line(source_name_, line_, "this is no TOML: a character outside of ASCII and outside of quotes",
                    "put it in quotes");
      }
      if (c == '\n') ++line_;
      if (c == '=') in_value_ = true;
      if (c == '\n' && open_.empty()) in_value_ = false;
      if (c == '[' || c == '{') open(c);
      if (c == ']') close('[');
      if (c == '}') close('{');
      ++at_;
    }
  }

 private:
  // In the midst of a bare word a quote opens nothing for toml++, which would then read on where we skip.
  void check_quote_may_stand_here() const {
    const char before = at_ == 0 ? '\n' : text_[at_ - 1];
    const bool begins_a_word = std::string_view(" \t\n\r=[,{").find(before) != std::string_view::npos;
    if (begins_a_word || (before == '.' && !in_value_)) return;
    refuse_line(source_name_, line_, "this is no TOML: a quote in the midst of a word", "put the whole word in quotes");
  }

  void open(char bracket) {
    open_ += bracket;
    if (open_.size() > kDeepestBrackets)
      refuse_line(source_name_, line_, "brackets are nested too deep", "a list of numbers is all a setting needs");
  }

  void close(char bracket) {
    if (open_.empty() || open_.back() != bracket) {
      refuse_line(source_name_, line_, fmt::format("this is no TOML: a '{}' that closes nothing", text_[at_]),
                  "balance the brackets");
    }
    open_.pop_back();
  }

  void skip_string(char quote) {
    const bool many_lines = text_.substr(at_, 3) == std::string(3, quote);
    const int first_line = line_;
    at_ += many_lines ? 3 : 1;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\n' && !many_lines) break;
      if (c == '\n') ++line_;
      if (c == '\\' && quote == '"') {
        const char next = at_ + 1 < text_.size() ? text_[at_ + 1] : '\n';
        if (next == '\n' || next == '\r' || next == ' ' || next == '\t') {
          refuse_line(source_name_, line_, "a text that goes on after a backslash is not supported here",
                      "write it on one line");
        }
        if (std::string_view("btnfr\"\\uU").find(next) == std::string_view::npos) {
          refuse_line(source_name_, line_, "this is no TOML: a backslash before a character that needs none",
                      "write \\\\ for a backslash, or put the text in single quotes");
        }
        at_ += 2;
      } else if (c == quote && !many_lines) {
        ++at_;
        return;
      } else if (c == quote && text_.substr(at_, 3) == std::string(3, quote)) {
        at_ += 3;
        // Up to two quotes may stand right before the closing three.
        for (int extra = 0; extra < 2 && at_ < text_.size() && text_[at_] == quote; ++extra) ++at_;
        return;
      } else {
        ++at_;
      }
    }
    refuse_line(source_name_, first_line, "this is no TOML: a text without its closing quote", "add the quote");
  }

  std::string_view text_, source_name_;
  size_t at_ = 0;
  int line_ = 1;
  bool in_value_ = false;  // after a '=', until the line or its brackets end
  std::string open_;
};

}  // namespace

void guard_toml(std::string_view text, std::string_view source_name) {
  std::string_view rest = text;
  for (int number = 1; !rest.empty(); ++number) {
    const size_t end = rest.find('\n');
    guard_line(rest.substr(0, end), number, source_name);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  }
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  TokenGuard(text, source_name).run();
}

}  // namespace tandem
