// market/market_source.h -- where the data of a run come from: a folder of the user's, or, without one, a generated
// market that says so. Never the second in place of the first.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "market/features.h"
#include "market/generated_market.h"
#include "market/market_data.h"
#include "market/market_folder.h"

namespace tandem {

struct MarketSource {
  std::filesystem::path folder;  // empty: generated
  MarketFolderOptions folder_options;
  GeneratedMarketOptions generated;
  FeatureOptions features;  // for the description only
};

// Throws ConfigError where the folder's data have an error (data_findings.h), which names the first few with file and
// line; warnings stand in the description. Rules that are not set (least_bars, today) are those of training.
MarketData load_market(const MarketSource& source);

// What `tandem data check options DIR` shows: all findings under the rules of training, and a line per symbol.
struct MarketCheck {
  DataFindings findings;
  std::string summary;             // "AAPL     502 days  2023-11-28 to 2025-11-26  volatility estimated"
  std::optional<MarketData> data;  // what training would read, where no finding is an error
};
MarketCheck check_market_folder(const MarketSource& source);

}  // namespace tandem
