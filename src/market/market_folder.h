// market/market_folder.h -- a folder of market data: SYM.csv or SYM.parquet, and SYM_options.csv or .parquet beside it.
//
// The symbol is the file's name. Other files, hidden ones and folders are ignored; a symbolic link in the place of a
// data file is an error, because it leads out of the folder.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "market/bars.h"
#include "market/chain.h"
#include "market/data_findings.h"

namespace tandem {

struct MarketFolderOptions {
  std::vector<std::string> symbols;  // empty: all
  std::string python;                // for Parquet; see parquet.h
  double rate = 0.03;                // for implied volatilities
  BarRules rules;
};

struct MarketFile {
  SymbolBars bars;
  std::vector<ImpliedDay> implied;  // empty: there is no chain
  std::string chain;                // its file; empty: the same
};

struct MarketFolder {
  std::vector<MarketFile> files;  // by symbol
  DataFindings findings;
};

// Reads and checks everything; faults of the data are findings. Throws ConfigError if there is no such folder, no data
// file in it, no file of a wanted symbol, or no Python for Parquet.
MarketFolder read_market_folder(const std::filesystem::path& folder, const MarketFolderOptions& options);

}  // namespace tandem
