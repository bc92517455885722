// fuzz/fuzz_engine_line.cc -- what a chess engine says (apps/chess/uci/engine_line.h), and in the last line the name of
// a player: any bytes are lines; what is read is bounded by what was said, and is fit to be sent back.
#include <cstdlib>

#include "apps/chess/player_name.h"
#include "apps/chess/uci/engine_line.h"
#include "apps/chess/uci/uci_words.h"

namespace {

using namespace tandem;
using namespace tandem::chess;

void expect(bool holds) {
  if (!holds) std::abort();
}

bool is_one_line(std::string_view text) { return text.find('\n') == text.npos; }

void check_option(const EngineOption& option, std::string_view line) {
  expect(option.name.size() <= line.size() && option.choices.size() <= line.size());
  for (const char* const value : {"true", "50", "-7", "words of a value", ""}) {
    const FittedOption fitted = fit_option(option, value);
    expect(is_one_line(fitted.value) && fitted.note.size() <= line.size() + 100);
    expect(fitted.trouble.empty() || fitted.note.empty());
  }
  expect(find_option({option}, option.name) != nullptr || option.name.empty());
}

void check_line(std::string_view line, std::vector<EngineOption>& options) {
  EngineLine read = read_engine_line(line);
  if (const auto* const info = std::get_if<EngineInfo>(&read)) {
    size_t said = 0;
    for (const std::string& move : info->line) said += move.size();
    expect(said <= line.size() && info->line.size() <= 256);
    if (info->score) expect(std::abs(info->score->mate_in.value_or(info->score->centipawns)) <= 1'000'000);
  }
  if (const auto* const best = std::get_if<EngineBestMove>(&read)) expect(best->move.size() <= line.size());
  if (const auto* const id = std::get_if<EngineId>(&read)) expect(id->text.size() <= line.size());
  if (auto* const option = std::get_if<EngineOption>(&read)) {
    check_option(*option, line);
    options.push_back(std::move(*option));
  }
}

void check_name(std::string_view text) {
  try {
    const PlayerName name = read_player_name(text);
    expect(name.text == text && name.is_process() == !(name.options.empty() && name.engine.empty() &&
                                                       name.kind != PlayerName::Kind::kStockfish));
    for (const auto& [key, value] : name.options) expect(!key.empty() && value.size() <= text.size());
    for (const auto& number : {name.elo, name.nodes, name.depth, name.move_time_ms}) expect(!number || *number >= 1);
  } catch (const ConfigError& error) {
    expect(error.render().size() < 4 * text.size() + 1000);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::vector<EngineOption> options;
  for (size_t lines = 0; !rest.empty() && lines < 64; ++lines) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    check_line(line, options);
    if (rest.empty()) check_name(line);
    for (const std::string_view word : words_of(line)) expect(!word.empty());
  }
  if (!options.empty()) find_option(options, options.back().name);
  return 0;
}
