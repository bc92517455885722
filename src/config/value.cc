#include "config/value.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "config/spelling.h"

namespace tandem {
namespace {

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

std::string toml_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\u{:04X}", byte);
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string toml_double(double value) {
  std::string text = fmt::format("{}", value);  // shortest text that reads back as the same double
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

std::string described(const Value& value) {
  return std::visit(
      Overloaded{[](bool v) { return std::string(v ? "true" : "false"); },
                 [](int64_t v) { return fmt::format("the whole number {}", v); },
                 [](double v) { return fmt::format("the number {}", v); },
                 [](const std::string& v) { return fmt::format("the text \"{}\"", printable(v).substr(0, 80)); },
                 [](const std::vector<int64_t>&) { return std::string("a list"); },
                 [](const ForeignValue& v) { return v.type; }},
      value);
}

std::string why_text(const Describer::Entry& entry) { return fmt::format("`{}` is: {}", entry.name, entry.help); }

std::string example(const Describer::Entry& entry) {
  return fmt::format("write it as in `{} = {}`", entry.name, toml_text(value_of(entry)));
}

[[noreturn]] void wrong_type(const Describer::Entry& entry, const std::string& found, std::string_view where) {
  throw ConfigError(fmt::format("{}: `{}` must be a {}, found {}", where, entry.name, type_name(entry), found),
                    why_text(entry), example(entry));
}

void check_range(const Describer::Entry& entry, const Range& range, double number, const std::string& text,
                 std::string_view where) {
  if (range.holds(number)) return;
  const std::string allowed = range.text().empty() ? "finite" : range.text();
  throw ConfigError(fmt::format("{}: `{}` is {}; it must be {}", where, entry.name, text, allowed), why_text(entry),
                    fmt::format("choose a value that is {}", allowed));
}

void check_choice(const Describer::Entry& entry, const Choices& choices, const std::string& word,
                  std::string_view where) {
  for (const std::string& choice : choices.words) {
    if (choice == word) return;
  }
  const std::string near = nearest_word(word, choices.words);
  throw ConfigError(fmt::format("{}: `{}` is \"{}\"; it must be one of {}", where, entry.name,
                                printable(word).substr(0, 80), fmt::join(choices.words, ", ")),
                    why_text(entry), near.empty() ? "choose one of them" : fmt::format("did you mean `{}`?", near));
}

void check_limit(const Describer::Entry& entry, const Value& value, std::string_view where) {
  if (const auto* choices = std::get_if<Choices>(&entry.limit)) {
    check_choice(entry, *choices, std::get<std::string>(value), where);
    return;
  }
  if (const auto* grammar = std::get_if<Grammar>(&entry.limit)) {
    const auto& text = std::get<std::string>(value);
    if (const auto reason = grammar->reason(text)) {
      throw ConfigError(
          fmt::format("{}: `{}` is \"{}\"; {}", where, entry.name, printable(text).substr(0, 80), *reason),
          why_text(entry), fmt::format("write {}", grammar->expected));
    }
    return;
  }
  Range range;
  if (const auto* given = std::get_if<Range>(&entry.limit)) range = *given;
  if (const auto* or_word = std::get_if<OrWord>(&entry.limit)) range = or_word->range;
  if (const auto* whole = std::get_if<int64_t>(&value)) {
    check_range(entry, range, static_cast<double>(*whole), fmt::format("{}", *whole), where);
  } else if (const auto* real = std::get_if<double>(&value)) {
    check_range(entry, range, *real, fmt::format("{}", *real), where);
  } else if (const auto* list = std::get_if<std::vector<int64_t>>(&value)) {
    for (const int64_t item : *list)
      check_range(entry, range, static_cast<double>(item), fmt::format("{}", item), where);
  }
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// "1000", "1_000", "+5"; the whole text must be used up.
template <typename T>
bool typed_number(std::string_view text, T& number) {
  std::string plain;
  for (const char c : trimmed(text)) {
    if (c != '_') plain += c;
  }
  if (plain.starts_with('+')) plain.erase(0, 1);
  const auto [end, error] = std::from_chars(plain.data(), plain.data() + plain.size(), number);
  return !plain.empty() && error == std::errc() && end == plain.data() + plain.size();
}

}  // namespace

std::string toml_text(const Value& value) {
  return std::visit(Overloaded{[](bool v) { return std::string(v ? "true" : "false"); },
                               [](int64_t v) { return fmt::format("{}", v); }, [](double v) { return toml_double(v); },
                               [](const std::string& v) { return toml_string(v); },
                               [](const std::vector<int64_t>& v) { return fmt::format("[{}]", fmt::join(v, ", ")); },
                               [](const ForeignValue& v) { return v.type; }},
                    value);
}

nlohmann::json to_json(const Value& value) {
  return std::visit(Overloaded{[](const ForeignValue& v) { return nlohmann::json(v.type); },
                               [](const auto& v) { return nlohmann::json(v); }},
                    value);
}

Value value_of(const Describer::Entry& entry) {
  if (const auto* or_word = std::get_if<OrWord>(&entry.limit)) {
    if (or_word->flag && *or_word->flag) return or_word->word;
  }
  return std::visit([](const auto* field) { return Value(*field); }, entry.target);
}

Value checked(const Describer::Entry& entry, Value value, std::string_view where) {
  if (const auto* or_word = std::get_if<OrWord>(&entry.limit)) {
    const auto* word = std::get_if<std::string>(&value);
    if (word && *word == or_word->word) return value;
    if (word) wrong_type(entry, described(value), where);
  }
  if (std::holds_alternative<double*>(entry.target)) {
    if (const auto* whole = std::get_if<int64_t>(&value)) value = static_cast<double>(*whole);
  }
  const bool fits = std::visit(
      [&](const auto* field) { return std::holds_alternative<std::remove_cvref_t<decltype(*field)>>(value); },
      entry.target);
  if (!fits) wrong_type(entry, described(value), where);
  check_limit(entry, value, where);
  return value;
}

void store(const Describer::Entry& entry, const Value& value) {
  if (const auto* or_word = std::get_if<OrWord>(&entry.limit)) {
    const bool by_word = std::holds_alternative<std::string>(value);
    if (or_word->flag) *or_word->flag = by_word;
    if (by_word) {
      *std::get<int64_t*>(entry.target) = 0;
      return;
    }
  }
  std::visit([&](auto* field) { *field = std::get<std::remove_cvref_t<decltype(*field)>>(value); }, entry.target);
}

Value typed_in(const Describer::Entry& entry, std::string_view text, std::string_view where) {
  const std::string found = fmt::format("\"{}\"", printable(text).substr(0, 80));
  const auto parse = Overloaded{
      [&](const bool*) -> Value {
        for (const char* yes : {"true", "1", "yes", "on"}) {
          if (text == yes) return true;
        }
        for (const char* no : {"false", "0", "no", "off"}) {
          if (text == no) return false;
        }
        wrong_type(entry, found, where);
      },
      [&](const int64_t*) -> Value {
        const auto* or_word = std::get_if<OrWord>(&entry.limit);
        if (or_word && (text == or_word->word || text == fmt::format("\"{}\"", or_word->word))) return or_word->word;
        int64_t number = 0;
        if (!typed_number(text, number)) wrong_type(entry, found, where);
        return number;
      },
      [&](const double*) -> Value {
        double number = 0;
        if (!typed_number(text, number)) wrong_type(entry, found, where);
        return number;
      },
      [&](const std::string*) -> Value {
        if (!is_utf8(text)) wrong_type(entry, "bytes that are no UTF-8", where);
        if (text.size() >= 2 && (text.front() == '"' || text.front() == '\'') && text.back() == text.front()) {
          text = text.substr(1, text.size() - 2);  // --set precision='"bf16"', as it stands in TOML
        }
        return std::string(text);
      },
      [&](const std::vector<int64_t>*) -> Value {
        std::string_view rest = trimmed(text);
        if (rest.starts_with('[') && rest.ends_with(']')) rest = trimmed(rest.substr(1, rest.size() - 2));
        std::vector<int64_t> list;
        while (!rest.empty()) {
          const size_t comma = rest.find(',');
          int64_t number = 0;
          if (!typed_number(rest.substr(0, comma), number)) wrong_type(entry, found, where);
          list.push_back(number);
          rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
        }
        return list;
      }};
  return checked(entry, std::visit(parse, entry.target), where);
}

std::string type_name(const Describer::Entry& entry) {
  std::string name =
      std::visit(Overloaded{[](const bool*) { return "true or false"; }, [](const int64_t*) { return "whole number"; },
                            [](const double*) { return "number"; }, [](const std::string*) { return "text"; },
                            [](const std::vector<int64_t>*) { return "list of whole numbers"; }},
                 entry.target);
  if (const auto* or_word = std::get_if<OrWord>(&entry.limit)) name += fmt::format(" or \"{}\"", or_word->word);
  return name;
}

std::string allowed_text(const Describer::Entry& entry) {
  return std::visit(Overloaded{[](std::monostate) { return std::string(); }, [](const Range& r) { return r.text(); },
                               [](const Choices& c) { return fmt::format("one of {}", fmt::join(c.words, ", ")); },
                               [](const Grammar& g) { return g.expected; },
                               [](const OrWord& w) { return fmt::format("{}, or \"{}\"", w.range.text(), w.word); }},
                    entry.limit);
}

}  // namespace tandem
