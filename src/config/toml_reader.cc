#include "config/toml_reader.h"

// What config/toml_guard.h does not stop: an assert of toml++ that fails is a refusal like any other, in every build
// type. With NDEBUG it would be undefined behaviour instead.
namespace tandem {
struct ParserLost {};
}  // namespace tandem
#undef NDEBUG
#define TOML_ASSERT(expression) \
  if (!(expression)) throw tandem::ParserLost()
#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 1
#define TOML_ENABLE_FORMATTERS 0
#define TOML_ENABLE_WINDOWS_COMPAT 0
#define TOML_MAX_NESTED_VALUES 8  // no setting is deeper than a list
#include <fmt/format.h>
// Some of the asserts stand in noexcept functions: there, an end is still better than undefined behaviour.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wterminate"
#endif
#include <toml++/toml.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#include "base/errors.h"
#include "config/spelling.h"
#include "config/toml_guard.h"

namespace tandem {
namespace {

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (true) {
    const size_t at = text.find('\n');
    lines.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return lines;
    text.remove_prefix(at + 1);
  }
}

// What follows the first '#' outside of quotes. Enough for lines that we wrote: one value, one-line strings.
std::string trailing_comment(std::string_view line) {
  char quote = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote == '"' && c == '\\') {
      ++i;
    } else if (quote) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '#') {
      std::string_view rest = line.substr(i + 1);
      while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
      while (!rest.empty() && (rest.back() == ' ' || rest.back() == '\r')) rest.remove_suffix(1);
      return std::string(rest);
    }
  }
  return "";
}

Value list_value(const toml::array& array) {
  std::vector<int64_t> list;
  for (const toml::node& node : array) {
    const auto* number = node.as_integer();
    if (!number) return ForeignValue{"a list that holds more than whole numbers"};
    list.push_back(number->get());
  }
  return list;
}

Value node_value(const toml::node& node) {
  if (const auto* v = node.as_boolean()) return v->get();
  if (const auto* v = node.as_integer()) return v->get();
  if (const auto* v = node.as_floating_point()) return v->get();
  if (const auto* v = node.as_string()) return v->get();
  if (const auto* v = node.as_array()) return list_value(*v);
  return ForeignValue{node.is_table() ? "a table" : "a date or time"};
}

class Flattener {
 public:
  explicit Flattener(std::vector<std::string_view> lines) : lines_(std::move(lines)) {}

  void add(const toml::table& table, const std::string& prefix) {
    for (const auto& [name, node] : table) {
      // A dot inside a quoted key is part of the name: kept quoted, so that it can't pass for a path.
      std::string part(name.str());
      if (part.find('.') != std::string::npos) part = '"' + part + '"';
      const std::string key = prefix.empty() ? part : prefix + "." + part;
      if (const auto* inner = node.as_table()) {
        if (inner->empty() && inner->is_inline())
          items.push_back(item(key, node, Value(ForeignValue{"an empty table"})));
        add(*inner, key);
      } else {
        items.push_back(item(key, node, node_value(node)));
      }
    }
  }

  std::vector<TomlItem> items;

 private:
  TomlItem item(const std::string& key, const toml::node& node, Value value) const {
    const int line = static_cast<int>(node.source().begin.line);
    const bool known = line >= 1 && static_cast<size_t>(line) <= lines_.size();
    return {key, std::move(value), line, known ? trailing_comment(lines_[static_cast<size_t>(line) - 1]) : ""};
  }

  std::vector<std::string_view> lines_;
};

}  // namespace

std::vector<TomlItem> read_toml(std::string_view text, std::string_view source_name) {
  if (text.size() > kLargestToml) {
    throw ConfigError(fmt::format("{}: {} bytes are too many for a recipe", source_name, text.size()),
                      fmt::format("a recipe is a page of text; the limit is {} bytes", kLargestToml),
                      "check that it is the right file");
  }
  try {
    guard_toml(text, source_name);
    const toml::table table = toml::parse(text);
    Flattener flattener(lines_of(text));
    flattener.add(table, "");
    return std::move(flattener.items);
  } catch (const toml::parse_error& error) {
    const auto where = error.source().begin;
    throw ConfigError(
        fmt::format("{}:{}: this is no TOML: {}", source_name, where.line, printable(error.description())),
        "a recipe is TOML: `key = value` lines, texts in quotes, tables in [brackets]",
        fmt::format("correct line {}, column {}", where.line, where.column));
  } catch (const ParserLost&) {
    throw ConfigError(fmt::format("{}: this is no TOML", source_name),
                      "a recipe is TOML: `key = value` lines, texts in quotes, tables in [brackets]",
                      "take lines out until it is read, to find the one that is wrong");
  }
}

}  // namespace tandem
