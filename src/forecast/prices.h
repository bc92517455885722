// forecast/prices.h -- what electricity, rented and bought GPUs cost: a file that the user edits.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

struct CloudPrice {
  std::string name, hardware;  // "aws-p3-2xlarge", "8xH100"
  double per_hour = 0;         // of all of it
};

struct BuyPrice {
  std::string name, hardware;
  double price = 0;
};

inline constexpr double kMostForKwh = 1000;

struct Prices {
  std::string source;      // the file, or "the guides' examples"
  std::string kwh_source;  // where the price of a kWh comes from
  std::string currency = "USD";
  double kwh = .12;
  std::vector<CloudPrice> cloud;
  std::vector<BuyPrice> buy;
};

// The file that is written on request: the guides' prices, each with the words it stands on.
std::string_view example_prices();

// Throws ConfigError: no TOML, an unknown key, a price that is none.
Prices read_prices(std::string_view text, const std::string& source);

// XDG_CONFIG_HOME/tandem/prices.toml or ~/.config/tandem/prices.toml; empty if there is no home.
std::filesystem::path prices_path();
// `file` if it is named (it must be there), the user's file if there is one, else the examples.
Prices load_prices(const std::optional<std::string>& file);

}  // namespace tandem
