// config/resolver.h -- puts values from files, environment and flags into a recipe's settings, and remembers who set
// what.
//
// Apply the weakest source first; a later one wins. Every error names where the value stood, the key, what was expected
// and found, and for an unknown key the nearest one. A value that is refused leaves the settings as they were.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/run_settings.h"
#include "config/settings.h"
#include "config/value.h"

namespace tandem {

struct KeyInfo {
  std::string name;
  std::string type;   // "true or false", "whole number", "number", "text", "list of whole numbers"
  std::string value;  // as TOML writes it
  std::string default_value;
  std::string source;   // "default", "tiny.toml:3", "TANDEM_STEPS", "--lr", ...
  std::string allowed;  // "above 0", "one of adam, adamw, sgd"; may be empty
  std::string help;
  Role role = Role::kResult;
};

class Resolver {
 public:
  // Keeps references to the fields of `settings`, which must outlive it.
  explicit Resolver(RecipeSettings& settings);

  // A TOML text: dotted keys and tables. A top-level `recipe = "..."` is allowed (see recipe_named_in). A text that
  // to_toml() wrote keeps the sources noted in it; otherwise the source of a value is "<source_name>:<line>".
  // All or nothing: an error anywhere in the text leaves every setting as it was.
  void apply_toml(std::string_view text, std::string_view source_name);

  // A project or user file (tandem.toml): like apply_toml, and `[recipes.<name>]` tables hold for that recipe only;
  // `runs_root` is not a recipe's key and is skipped (see runs_root_named_in).
  void apply_defaults_file(std::string_view text, std::string_view source_name, std::string_view recipe);

  // One value as a person types it: --set, flags. `source` is what an error is prefixed with.
  void set(std::string_view key, std::string_view value, std::string_view source);

  // TANDEM_<KEY> for every key, '.' as '_'. `lookup` returns the value of a variable or nothing.
  void apply_environment(const std::function<std::optional<std::string>(const std::string&)>& lookup);

  // Values and sources of the keys that `whole` has too, those given for its member `member` over them: the settings of
  // one model of a recipe that trains several. Only what is at least this strong (see strength()).
  void take(const Resolver& whole, std::string_view member, int least_strength = 0);

  // For values that follow from others (freeze()): the field was changed in place, this notes why.
  void note_source(std::string_view key, std::string_view source);

  // Resolved: "key = value   # <source>", grouped in tables. Reading it back gives the same values and sources.
  std::string to_toml(std::string_view recipe_name) const;
  nlohmann::json result_values() const;  // Role::kResult keys only: what a checkpoint's manifest holds
  nlohmann::json to_json() const;        // every key -> value
  std::string source(std::string_view key) const;
  int strength(std::string_view key) const;  // who set it: 0 nobody, 1 a file, 2 this command line or the environment
  std::vector<KeyInfo> keys() const;

 private:
  struct Place {
    const Describer::Entry* entry;
    std::string member;  // empty: of the whole
  };
  struct Change {
    Place place;
    Value value;
    std::string source;
  };
  struct MemberValue {
    Value value;
    std::string source;
    int strength;
  };
  const Describer::Entry& find(std::string_view key, std::string_view where) const;
  Place place_of(std::string_view key, std::string_view where) const;
  void apply(const Change& change, int strength);

  Describer describer_;
  std::vector<std::string> member_names_, shared_keys_;
  std::map<std::string, std::map<std::string, MemberValue>> members_;  // by member, then by key
  std::map<std::string, std::string, std::less<>> sources_, defaults_;
  std::map<std::string, int, std::less<>> strengths_;  // 0 if absent
};

// The top-level `recipe` of a TOML text, if it has one. Throws ConfigError if the text is no TOML.
std::optional<std::string> recipe_named_in(std::string_view text, std::string_view source_name);
// The top-level `runs_root` of a tandem.toml, if it has one.
std::optional<std::string> runs_root_named_in(std::string_view text, std::string_view source_name);

// Throws ConfigError naming each kResult key that differs, shards first. `where` is what is being resumed: "tiny-0412".
void check_compatible(const nlohmann::json& checkpoint_values, const nlohmann::json& now, std::string_view where);

// Fixes what the recipe leaves to the start of a run, so that a resume finds numbers: `shards = "devices"` becomes the
// device count and batch_size the global one; schedule.total_steps becomes steps. Then settings.check().
void freeze(Resolver& resolver, RecipeSettings& settings, int device_count);

}  // namespace tandem
