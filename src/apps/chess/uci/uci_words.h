// apps/chess/uci/uci_words.h -- lines of the Universal Chess Interface as words, for both of its ends: the engines that
// we start, and the programs that start us.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/printable.h"

namespace tandem::chess {

// The words of a text, one after the other; empty at the end. Blanks and control characters separate them.
class UciWords {
 public:
  explicit UciWords(std::string_view text) : rest_(text) {}

  std::string_view next() {
    rest_.remove_prefix(blanks_at_front(rest_));
    size_t size = 0;
    while (size < rest_.size() && !is_blank(rest_[size])) ++size;
    const std::string_view word = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return word;
  }
  // What has not been taken yet, without blanks at its ends.
  std::string_view rest() const { return without_blanks(rest_); }

  static std::string_view without_blanks(std::string_view text) {
    text.remove_prefix(blanks_at_front(text));
    while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
    return text;
  }

 private:
  static bool is_blank(char c) { return static_cast<unsigned char>(c) <= ' '; }
  static size_t blanks_at_front(std::string_view text) {
    size_t count = 0;
    while (count < text.size() && is_blank(text[count])) ++count;
    return count;
  }

  std::string_view rest_;
};

inline std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> found;
  UciWords words(line);
  for (std::string_view word = words.next(); !word.empty(); word = words.next()) found.push_back(word);
  return found;
}

// Names of options, and values of some, are the same with other capitals.
inline bool same_uci_name(std::string_view a, std::string_view b) {
  const auto small = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return std::ranges::equal(a, b, [small](char x, char y) { return small(x) == small(y); });
}

// For messages: the beginning of what the other end said, fit for a terminal.
inline std::string beginning_of(std::string_view text, size_t longest) {
  return printable(text.substr(0, longest)) + (text.size() > longest ? "..." : "");
}

}  // namespace tandem::chess
