#include "forecast/prices.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/errors.h"
#include "base/file_system.h"
#include "config/spelling.h"
#include "config/toml_reader.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kExamples =
    R"(# Prices that `tandem plan` counts with. They are examples from 2025, taken from the guides that tandem replaces: edit
# them. Every [cloud.<name>] is something to rent: what it has, and what an hour of all of it costs. Every [buy.<name>]
# is something to buy. Hardware is written as for `tandem plan --hardware`.

[electricity]
price_kwh = 0.12      # "840W * 24h * 30d * $0.12/kWh = ~$73/month" (Multi-GPU Training Setup Guide, 3060 Ti + 2x 3070)
currency = "USD"

[cloud.aws-p3-2xlarge]
hardware = "V100"
per_hour = 3.06       # "AWS p3.2xlarge (1x V100): $3.06/hour" (the same guide, cost analysis)

[cloud.h100-x1]
hardware = "H100"
per_hour = 1.00       # "1 | 10.2 minutes | $0.17" (Multi-GPU Training Implementation Summary, H100 table)

[cloud.h100-x4]
hardware = "4xH100"
per_hour = 4.07       # "4 | 2.8 minutes | $0.19", RunPod or Lambda Labs (the same table)

[cloud.h100-x8]
hardware = "8xH100"
per_hour = 8.00       # "8 | 1.5 minutes | $0.20" (the same table)

[cloud.mi325x-x8]
hardware = "8xMI325X"
per_hour = 27.60      # "2 minutes, $0.92", TensorWave (the same summary, production training)

[buy.rtx-4090]
hardware = "4090"
price = 1800          # "RTX 4090: $1,600-$2,000" (Setup Guide)

[buy.three-GPUs]
hardware = "3060ti+2x3070"
price = 2000          # "Price (if buying): ~$2,000" (Setup Guide)
)";

constexpr double kMostMoney = 1e9;

double price_of(const TomlItem& item, const std::string& where) {
  double price = -1;
  if (const auto* whole = std::get_if<int64_t>(&item.value)) price = static_cast<double>(*whole);
  if (const auto* real = std::get_if<double>(&item.value)) price = *real;
  if (!(price >= 0) || price > kMostMoney)
    throw ConfigError(fmt::format("{}: {} is no price", where, printable(item.key)),
                      fmt::format("a price is a number from 0 to {:.0e}", kMostMoney),
                      "write it without a currency sign, as in 3.06");
  return price;
}

std::string text_of(const TomlItem& item, const std::string& where) {
  if (const auto* text = std::get_if<std::string>(&item.value); text && !text->empty()) return printable(*text);
  throw ConfigError(fmt::format("{}: {} is no text", where, item.key), "it names something",
                    "put it in quotes, as in \"8xH100\"");
}

template <class Entry>
Entry& entry_of(std::vector<Entry>& entries, const std::string& name) {
  const auto found = std::ranges::find_if(entries, [&](const Entry& e) { return e.name == name; });
  if (found != entries.end()) return *found;
  entries.push_back({name, "", -1});
  return entries.back();
}

[[noreturn]] void refuse_key(const std::string& where, const std::string& key) {
  throw ConfigError(fmt::format("{}: there is no price '{}'", where, printable(key)),
                    "known are electricity.price_kwh, electricity.currency, cloud.<name>.hardware, "
                    "cloud.<name>.per_hour, buy.<name>.hardware and buy.<name>.price",
                    "correct it, or make a fresh file with `tandem plan --make-prices`");
}

}  // namespace

std::string_view example_prices() { return kExamples; }

Prices read_prices(std::string_view text, const std::string& source) {
  Prices prices{.source = source, .kwh_source = source, .currency = "USD", .kwh = .12, .cloud = {}, .buy = {}};
  for (const TomlItem& item : read_toml(text, source)) {
    const std::string where = fmt::format("{}:{}", source, item.line);
    const size_t first = item.key.find('.'), last = item.key.rfind('.');
    if (first == std::string::npos) refuse_key(where, item.key);
    const std::string group = item.key.substr(0, first), leaf = item.key.substr(last + 1);
    const std::string name = first < last ? printable(item.key.substr(first + 1, last - first - 1)) : "";
    if (item.key == "electricity.price_kwh") {
      prices.kwh = price_of(item, where);
      if (prices.kwh > kMostForKwh)
        throw ConfigError(fmt::format("{}: {} for a kilowatt-hour", where, prices.kwh),
                          fmt::format("it is at most {:.0f}", kMostForKwh), "write price_kwh = 0.30, say");
    } else if (item.key == "electricity.currency")
      prices.currency = text_of(item, where);
    else if (group == "cloud" && !name.empty() && leaf == "hardware")
      entry_of(prices.cloud, name).hardware = text_of(item, where);
    else if (group == "cloud" && !name.empty() && leaf == "per_hour")
      entry_of(prices.cloud, name).per_hour = price_of(item, where);
    else if (group == "buy" && !name.empty() && leaf == "hardware")
      entry_of(prices.buy, name).hardware = text_of(item, where);
    else if (group == "buy" && !name.empty() && leaf == "price")
      entry_of(prices.buy, name).price = price_of(item, where);
    else
      refuse_key(where, item.key);
  }
  const auto whole = [&](const auto& entries, const char* group, const char* price, auto figure) {
    for (const auto& entry : entries)
      if (entry.hardware.empty() || entry.*figure < 0)
        throw ConfigError(fmt::format("{}: {}.{} does not say {}", source, group, entry.name,
                                      entry.hardware.empty() ? "what it is" : "what it costs"),
                          fmt::format("every entry has `hardware` and `{}`", price),
                          entry.hardware.empty() ? std::string("add hardware = \"8xH100\", say")
                                                 : fmt::format("add {} = 3.06, say", price));
  };
  whole(prices.cloud, "cloud", "per_hour", &CloudPrice::per_hour);
  whole(prices.buy, "buy", "price", &BuyPrice::price);
  return prices;
}

fs::path prices_path() {
  if (const char* config = std::getenv("XDG_CONFIG_HOME"); config && *config)
    return fs::path(config) / "tandem" / "prices.toml";
  if (const char* home = std::getenv("HOME"); home && *home)
    return fs::path(home) / ".config" / "tandem" / "prices.toml";
  return {};
}

Prices load_prices(const std::optional<std::string>& file) {
  std::error_code none;
  const fs::path path = file ? fs::path(*file) : prices_path();
  if (!file && (path.empty() || !fs::is_regular_file(path, none)))
    return read_prices(kExamples, "the guides' examples");
  try {
    const FileBytes text = read_whole_file(FileSystem::real(), path, kLargestToml);
    return read_prices(text.text(), path.string());
  } catch (const IoError& error) {
    throw ConfigError(fmt::format("cannot read {}", path.string()), error.why(),
                      fmt::format("make one with `tandem plan --make-prices --prices {}`, and edit it", path.string()));
  }
}

}  // namespace tandem
