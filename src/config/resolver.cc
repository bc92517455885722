#include "config/resolver.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "config/members.h"
#include "config/spelling.h"
#include "config/toml_reader.h"
#include "config/value.h"

namespace tandem {
namespace {

constexpr std::string_view kResolvedMark = "# resolved by tandem: each value, and what set it";
constexpr std::string_view kRecipeTables = "recipes.";

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
  if (const auto* several = dynamic_cast<const HasMembers*>(&settings)) {
    member_names_ = several->members();
    shared_keys_ = several->shared_keys();
  }
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

Resolver::Place Resolver::place_of(std::string_view key, std::string_view where) const {
  const std::string_view member = key.substr(0, key.find('.'));
  if (std::find(member_names_.begin(), member_names_.end(), member) == member_names_.end())
    return {&find(key, where), ""};
  const std::string rest(key.substr(std::min(member.size() + 1, key.size())));
  if (std::find(shared_keys_.begin(), shared_keys_.end(), rest) != shared_keys_.end())
    throw ConfigError(fmt::format("{}: `{}` can't be set for {} alone", where, rest, member),
                      "it belongs to the run as a whole", fmt::format("set `{}` without `{}.`", rest, member));
  return {&find(rest, fmt::format("{}: {}", where, member)), std::string(member)};
}

void Resolver::apply(const Change& change, int strength) {
  const std::string& name = change.place.entry->name;
  if (!change.place.member.empty()) {
    members_[change.place.member][name] = {change.value, change.source, strength};
    return;
  }
  store(*change.place.entry, change.value);
  sources_[name] = change.source;
  strengths_[name] = strength;
}

void Resolver::take(const Resolver& whole, std::string_view member, int least_strength) {
  const auto own = whole.members_.find(std::string(member));
  for (const auto& entry : describer_.entries()) {
    for (const auto& other : whole.describer_.entries()) {
      if (other.name != entry.name || whole.strength(other.name) < least_strength) continue;
      apply({{&entry, ""}, value_of(other), whole.sources_.at(other.name)}, whole.strength(other.name));
    }
    if (own == whole.members_.end()) continue;
    if (const auto given = own->second.find(entry.name); given != own->second.end())
      if (given->second.strength >= least_strength)
        apply({{&entry, ""}, given->second.value, given->second.source}, given->second.strength);
  }
}

void Resolver::apply_toml(std::string_view text, std::string_view source_name) {
  const bool resolved_copy = text.starts_with(kResolvedMark);
  std::vector<Change> changes;
  for (const TomlItem& item : read_toml(text, source_name)) {
    if (item.key == "recipe") continue;
    const std::string where = fmt::format("{}:{}", source_name, item.line);
    const Place place = place_of(item.key, where);
    const bool noted = resolved_copy && !item.comment.empty();
    changes.push_back({place, checked(*place.entry, item.value, where), noted ? item.comment : where});
  }
  for (const Change& change : changes) apply(change, change.source == "default" ? 0 : 1);
}

void Resolver::apply_defaults_file(std::string_view text, std::string_view source_name, std::string_view recipe) {
  std::vector<Change> general, special;  // a recipe's own table wins over the general keys, wherever it stands
  for (const TomlItem& item : read_toml(text, source_name)) {
    if (item.key == "recipe" || item.key == "runs_root") continue;
    const std::string where = fmt::format("{}:{}", source_name, item.line);
    const auto own = key_for_recipe(item.key, recipe);
    if (!own && item.key.starts_with(kRecipeTables)) continue;
    const Place place = place_of(own.value_or(item.key), where);
    (own ? special : general).push_back({place, checked(*place.entry, item.value, where), where});
  }
  general.insert(general.end(), special.begin(), special.end());
  for (const Change& change : general) apply(change, 1);
}

void Resolver::set(std::string_view key, std::string_view value, std::string_view source) {
  const Place place = place_of(key, source);
  apply({place, typed_in(*place.entry, value, source), printable(source)}, 2);
}

void Resolver::apply_environment(const std::function<std::optional<std::string>(const std::string&)>& lookup) {
  std::vector<std::string> keys;
  for (const auto& entry : describer_.entries()) keys.push_back(entry.name);
  for (const std::string& member : member_names_)
    for (const auto& entry : describer_.entries()) keys.push_back(fmt::format("{}.{}", member, entry.name));
  for (const std::string& key : keys) {
    const std::string variable = "TANDEM_" + upper_with_underscores(key);
    if (const auto value = lookup(variable)) set(key, *value, variable);
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
  for (const auto& [member, values] : members_) {
    out += fmt::format("\n[{}]\n", member);
    for (const auto& [key, given] : values)
      out += fmt::format("{:<{}}   # {}\n", fmt::format("{} = {}", key, toml_text(given.value)), width, given.source);
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
  for (const auto& [member, own] : members_)
    for (const auto& [key, given] : own) values[fmt::format("{}.{}", member, key)] = tandem::to_json(given.value);
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
  for (const auto& [member, values] : members_) {
    for (const auto& [key, given] : values) {
      const auto& entry = find(key, member);
      infos.push_back({fmt::format("{}.{}", member, key), type_name(entry), toml_text(given.value), "", given.source,
                       allowed_text(entry), fmt::format("for {} alone: {}", member, entry.help), entry.role});
    }
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
