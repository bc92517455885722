#include "market/market_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <utility>

#include "base/errors.h"
#include "base/plain_file.h"
#include "base/printable.h"
#include "market/parquet.h"

namespace tandem {

namespace {

constexpr std::string_view kChainEnding = "_options";
constexpr off_t kLargestFile = off_t{4} << 30;

bool is_symbol(const std::string& name) {
  const auto good = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
           std::string_view("._-^=").find(c) != std::string_view::npos;
  };
  return !name.empty() && name.size() <= 64 && name.front() != '=' && name.front() != '-' &&
         std::all_of(name.begin(), name.end(), good);
}

// A symbol's files by name.
struct SymbolFiles {
  std::vector<std::string> bars, chains;
};

bool is_market_file(const std::filesystem::path& path) {
  return path.extension() == ".csv" || path.extension() == ".parquet";
}

std::map<std::string, SymbolFiles> list_symbols(const std::filesystem::path& folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error))
    throw ConfigError(fmt::format("{} is no folder", printable(folder.string())),
                      "market data are a folder with a file SYM.csv or SYM.parquet for each symbol",
                      "give the folder that holds the files, or none for a generated market");
  std::map<std::string, SymbolFiles> found;
  std::filesystem::directory_iterator entries(folder, error);
  if (error)
    throw ConfigError(fmt::format("{} cannot be read", printable(folder.string())), error.message(),
                      "check the folder's permissions");
  for (const auto& entry : entries) {
    const std::filesystem::path& path = entry.path();
    if (!is_market_file(path) || path.filename().string().starts_with('.')) continue;
    const std::string stem = path.stem().string();
    const bool chain = stem.size() > kChainEnding.size() && stem.ends_with(kChainEnding);
    SymbolFiles& files = found[chain ? stem.substr(0, stem.size() - kChainEnding.size()) : stem];
    (chain ? files.chains : files.bars).push_back(path.filename().string());
  }
  for (auto& [symbol, files] : found) {
    if (!is_symbol(symbol))
      throw ConfigError(
          fmt::format("the file {} is not named by a symbol",
                      printable((files.bars.empty() ? files.chains : files.bars).front())),
          "a symbol has letters, digits and . _ - ^ = only, at most 64: it stands in lists of trades and on pages",
          "rename the file, or move it out of the folder");
    std::sort(files.bars.begin(), files.bars.end());
    std::sort(files.chains.begin(), files.chains.end());
  }
  return found;
}

void keep_wanted(std::map<std::string, SymbolFiles>& found, const std::filesystem::path& folder,
                 const std::vector<std::string>& wanted) {
  std::string names;
  for (const auto& [symbol, files] : found)
    if (!files.bars.empty()) names += fmt::format("{}{}", names.empty() ? "" : ", ", symbol);
  if (names.empty())
    throw ConfigError(fmt::format("{} holds no market data", printable(folder.string())),
                      "there is no file *.csv or *.parquet in it",
                      "put a file SYM.csv with date,open,high,low,close,volume there for each symbol");
  if (wanted.empty()) return;
  std::map<std::string, SymbolFiles> kept;
  for (const std::string& symbol : wanted) {
    const auto at = found.find(symbol);
    if (at == found.end() || at->second.bars.empty())
      throw ConfigError(fmt::format("{} has no data of {}", printable(folder.string()), printable(symbol)),
                        fmt::format("it has: {}", printable(names)), "choose among these, or add the file");
    kept.insert(*at);
  }
  found = std::move(kept);
}

// An open data file, or -1 and a finding.
int open_data_file(const std::filesystem::path& path, const std::string& name, DataFindings& findings) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  struct stat facts {};
  if (fd < 0 && errno == ELOOP) {
    findings.error("link", name, 0, "it is a symbolic link, which is not followed: put the file itself there");
    return -1;
  }
  if (fd < 0 || fstat(fd, &facts) != 0) {
    findings.error("file", name, 0, fmt::format("it cannot be opened: {}", std::strerror(errno)));
    return -1;
  }
  if (S_ISREG(facts.st_mode) && facts.st_size <= kLargestFile) return fd;
  const std::string what = not_a_file(path);
  findings.error("file", name, 0, what.empty() ? "it is larger than 4 GiB" : "it is " + what);
  close(fd);
  return -1;
}

std::string text_of(int fd, const std::string& name, DataFindings& findings) {
  std::string text;
  char buffer[1 << 16];
  while (true) {
    const ssize_t got = read(fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) findings.error("file", name, 0, fmt::format("it cannot be read: {}", std::strerror(errno)));
    if (got <= 0) return text;
    text.append(buffer, static_cast<size_t>(got));
  }
}

// CSV text of either kind of file; empty where a finding says why there is none.
std::string csv_text(const std::filesystem::path& path, std::span<const MarketColumn> columns,
                     const std::string& python, DataFindings& findings) {
  const std::string name = path.filename().string();
  const int fd = open_data_file(path, name, findings);
  if (fd < 0) return "";
  struct Closed {
    int fd;
    ~Closed() { close(fd); }
  } closed{fd};
  return path.extension() == ".parquet" ? parquet_as_csv(fd, name, columns, python, findings)
                                        : text_of(fd, name, findings);
}

// Where a symbol has two files of a kind, neither is the right one.
void refuse_twice(const std::vector<std::string>& files, const std::string& symbol, DataFindings& findings) {
  if (files.size() > 1)
    findings.error("twice", files[1], 0, fmt::format("{} is there already, as {}", symbol, files[0]));
}

MarketFile read_symbol(const std::filesystem::path& folder, const std::string& symbol, const SymbolFiles& files,
                       const MarketFolderOptions& options, DataFindings& findings) {
  MarketFile out;
  refuse_twice(files.bars, symbol, findings);
  const int64_t before = findings.errors();
  const std::string text = csv_text(folder / files.bars[0], bar_columns(), options.python, findings);
  out.bars.symbol = symbol, out.bars.file = files.bars[0];
  if (findings.errors() == before) out.bars = read_bars(text, symbol, files.bars[0], findings);
  // What has no usable header is not called short as well.
  if (findings.errors() == before || !out.bars.bars.empty()) check_bars(out.bars, options.rules, findings);
  if (files.chains.empty()) return out;
  refuse_twice(files.chains, symbol, findings);
  const std::string& name = out.chain = files.chains[0];
  const int64_t errors = findings.errors();
  const std::string chain = csv_text(folder / name, chain_columns(), options.python, findings);
  if (findings.errors() != errors) return out;
  std::vector<ChainQuote> quotes = read_chain(chain, name, findings);
  out.implied = implied_days(quotes, out.bars, name, options.rate, findings);
  return out;
}

}  // namespace

MarketFolder read_market_folder(const std::filesystem::path& folder, const MarketFolderOptions& options) {
  std::map<std::string, SymbolFiles> found = list_symbols(folder);
  keep_wanted(found, folder, options.symbols);
  MarketFolder out;
  for (const auto& [symbol, files] : found) {
    if (files.bars.empty())
      out.findings.error(
          "chain", files.chains[0], 0,
          fmt::format("there are options of {} but no file {}.csv or {}.parquet", symbol, symbol, symbol));
    else
      out.files.push_back(read_symbol(folder, symbol, files, options, out.findings));
  }
  return out;
}

}  // namespace tandem
