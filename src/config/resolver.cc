#include "config/resolver.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "config/spelling.h"
#include "config/toml_reader.h"
#include "config/value.h"

namespace tandem {
namespace {

constexpr std::string_view kResolvedMark = "# resolved by tandem: each value, and what set it";
constexpr std::string_view kRecipeTables = "recipes.";

struct Change {
  const Describer::Entry* entry;
  Value value;
  std::string source;
};

std::string upper_with_underscores(std::string_view key) {
  std::string out;
  for (const char c : key) out += c == '.' ? '_' : c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return out;
}

// "recipes.tiny.steps" for recipe "tiny" gives "steps"; a name with a dot or other signs may stand in quotes.
std::optional<std::string> key_for_recipe(std::string_view key, std::string_view recipe) {
  for (const std::string& name : {std::string(recipe), fmt::format("\"{}\"", recipe)}) {
    const std::string prefix = fmt::format("{}{}.", kRecipeTables, name);
    if (key.starts_with(prefix)) return std::string(key.substr(prefix.size()));
  }
  return std::nullopt;
}

std::optional<std::string> text_at_top(std::string_view text, std::string_view source_name, std::string_view key,
                                       std::string_view meaning) {
  for (const TomlItem& item : read_toml(text, source_name)) {
    if (item.key != key) continue;
    if (const auto* word = std::get_if<std::string>(&item.value)) return *word;
    throw ConfigError(
        fmt::format("{}:{}: `{}` must be a text, found {}", source_name, item.line, key, toml_text(item.value)),
        std::string(meaning), fmt::format("write it in quotes: `{} = \"...\"`", key));
  }
  return std::nullopt;
}

}  // namespace

Resolver::Resolver(RecipeSettings& settings) {
  settings.describe(describer_);
  for (const auto& entry : describer_.entries()) {
    sources_[entry.name] = "default";
    defaults_[entry.name] = toml_text(value_of(entry));
  }
}

const Describer::Entry& Resolver::find(std::string_view key, std::string_view where) const {
  std::vector<std::string> names;
  for (const auto& entry : describer_.entries()) {
    if (entry.name == key) return entry;
    names.push_back(entry.name);
  }
  std::string near = nearest_word(key, names);
  if (key == "lr") near = "optimizer.learning_rate";
  throw ConfigError(fmt::format("{}: unknown key `{}`", where, printable(key).substr(0, 80)),
                    "a misspelt key would be ignored in silence, so unknown ones are errors",
                    near.empty() ? "see the recipe's keys with `tandem config show <recipe>`"
                                 : fmt::format("did you mean `{}`?", near));
}

void Resolver::apply_toml(std::string_view text, std::string_view source_name) {
  const bool resolved_copy = text.starts_with(kResolvedMark);
  std::vector<Change> changes;
  for (const TomlItem& item : read_toml(text, source_name)) {
    if (item.key == "recipe") continue;
    const std::string where = fmt::format("{}:{}", source_name, item.line);
    const auto& entry = find(item.key, where);
    const bool noted = resolved_copy && !item.comment.empty();
    changes.push_back({&entry, checked(entry, item.value, where), noted ? item.comment : where});
  }
  for (const Change& change : changes) {
    store(*change.entry, change.value);
    sources_[change.entry->name] = change.source;
    strengths_[change.entry->name] = change.source == "default" ? 0 : 1;
  }
}

void Resolver::apply_defaults_file(std::string_view text, std::string_view source_name, std::string_view recipe) {
  std::vector<Change> general, special;  // a recipe's own table wins over the general keys, wherever it stands
  for (const TomlItem& item : read_toml(text, source_name)) {
    if (item.key == "recipe" || item.key == "runs_root") continue;
    const std::string where = fmt::format("{}:{}", source_name, item.line);
    const auto own = key_for_recipe(item.key, recipe);
    if (!own && item.key.starts_with(kRecipeTables)) continue;
    const auto& entry = find(own.value_or(item.key), where);
    (own ? special : general).push_back({&entry, checked(entry, item.value, where), where});
  }
  general.insert(general.end(), special.begin(), special.end());
  for (const Change& change : general) {
    store(*change.entry, change.value);
    sources_[change.entry->name] = change.source;
    strengths_[change.entry->name] = change.source == "default" ? 0 : 1;
  }
}

void Resolver::set(std::string_view key, std::string_view value, std::string_view source) {
  const auto& entry = find(key, source);
  store(entry, typed_in(entry, value, source));
  sources_[entry.name] = printable(source);
  strengths_[entry.name] = 2;
}

void Resolver::apply_environment(const std::function<std::optional<std::string>(const std::string&)>& lookup) {
  for (const auto& entry : describer_.entries()) {
    const std::string variable = "TANDEM_" + upper_with_underscores(entry.name);
    if (const auto value = lookup(variable)) set(entry.name, *value, variable);
  }
}

void Resolver::note_source(std::string_view key, std::string_view source) {
  sources_[find(key, source).name] = printable(source);
}

std::string Resolver::to_toml(std::string_view recipe_name) const {
  struct Line {
    std::string text, source;
  };
  std::vector<std::pair<std::string, std::vector<Line>>> tables = {{"", {}}};
  size_t width = 0;
  for (const auto& entry : describer_.entries()) {
    const size_t dot = entry.name.find('.');
    const std::string table = dot == std::string::npos ? "" : entry.name.substr(0, dot);
    const std::string name = dot == std::string::npos ? entry.name : entry.name.substr(dot + 1);
    auto place = std::find_if(tables.begin(), tables.end(), [&](const auto& t) { return t.first == table; });
    if (place == tables.end()) place = tables.insert(tables.end(), {table, {}});
    place->second.push_back({fmt::format("{} = {}", name, toml_text(value_of(entry))), sources_.at(entry.name)});
    width = std::max(width, std::min<size_t>(place->second.back().text.size(), 40));
  }
  std::string out = fmt::format("{}\nrecipe = {}\n", kResolvedMark, toml_text(std::string(recipe_name)));
  for (const auto& [table, lines] : tables) {
    if (!table.empty()) out += fmt::format("\n[{}]\n", table);
    for (const Line& line : lines) out += fmt::format("{:<{}}   # {}\n", line.text, width, line.source);
  }
  return out;
}

nlohmann::json Resolver::result_values() const {
  nlohmann::json values = nlohmann::json::object();
  for (const auto& entry : describer_.entries()) {
    if (entry.role == Role::kResult) values[entry.name] = tandem::to_json(value_of(entry));
  }
  return values;
}

nlohmann::json Resolver::to_json() const {
  nlohmann::json values = nlohmann::json::object();
  for (const auto& entry : describer_.entries()) values[entry.name] = tandem::to_json(value_of(entry));
  return values;
}

int Resolver::strength(std::string_view key) const {
  const auto it = strengths_.find(key);
  return it == strengths_.end() ? 0 : it->second;
}

std::string Resolver::source(std::string_view key) const { return sources_.at(find(key, "source").name); }

std::vector<KeyInfo> Resolver::keys() const {
  std::vector<KeyInfo> infos;
  for (const auto& entry : describer_.entries()) {
    infos.push_back({entry.name, type_name(entry), toml_text(value_of(entry)), defaults_.at(entry.name),
                     sources_.at(entry.name), allowed_text(entry), entry.help, entry.role});
  }
  return infos;
}

std::optional<std::string> recipe_named_in(std::string_view text, std::string_view source_name) {
  return text_at_top(text, source_name, "recipe", "it names the recipe that the file changes");
}

std::optional<std::string> runs_root_named_in(std::string_view text, std::string_view source_name) {
  return text_at_top(text, source_name, "runs_root", "it is the folder that new runs are made in");
}

}  // namespace tandem
