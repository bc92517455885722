#include "market/market_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/printable.h"
#include "market/dates.h"

namespace tandem {

namespace {

MarketFolderOptions training_rules(MarketFolderOptions options) {
  if (options.rules.least_bars == 0) options.rules.least_bars = kLeastMarketDays;
  if (options.rules.today == 0) options.rules.today = today_utc();
  return options;
}

int64_t days_with_quotes(const MarketFile& file) {
  return std::count_if(file.implied.begin(), file.implied.end(), [](const ImpliedDay& d) { return d.volatility > 0; });
}

std::string describe(const MarketFolder& folder, const MarketSource& source) {
  int64_t days = 0, quoted = 0;
  int32_t first = 0, last = 0;
  for (const MarketFile& file : folder.files) {
    days += static_cast<int64_t>(file.bars.bars.size());
    quoted += days_with_quotes(file);
    const int32_t begin = file.bars.bars.front().date, end = file.bars.bars.back().date;
    first = first == 0 ? begin : std::min(first, begin);
    last = std::max(last, end);
  }
  std::string out = fmt::format("{} symbols, {} days, {} to {}, from {}.", folder.files.size(), days, date_text(first),
                                date_text(last), printable(source.folder.string()));
  out += quoted > 0 ? fmt::format(" Implied volatility from quotes of options on {} days.", quoted) : "";
  if (quoted < days)
    out += fmt::format(
        " {}mplied volatility is ESTIMATED, not quoted: from returns up to that day (exponential weights .94) times "
        "{:g}, "
        "skew {:g}.",
        quoted > 0 ? "On other days i" : "I", source.features.premium, source.features.skew);
  if (folder.findings.warnings() > 0)
    out += fmt::format(" {} warnings: `tandem data check options` names them.", folder.findings.warnings());
  return out;
}

// A chain that says little: the user gave it to be used.
std::vector<std::string> chain_warnings(const MarketFolder& folder) {
  std::vector<std::string> warnings;
  for (const MarketFile& file : folder.files) {
    const auto days = static_cast<int64_t>(file.bars.bars.size());
    const int64_t quoted = days_with_quotes(file);
    if (file.chain.empty() || 2 * quoted >= days) continue;
    warnings.push_back(fmt::format(
        "{} gives the volatility of {} of {} days of {}: on the others it is ESTIMATED from returns, but for "
        "{} days after each",
        printable(file.chain), quoted, days, printable(file.bars.symbol), kStaleDays));
  }
  return warnings;
}

MarketData data_of(MarketFolder& folder, const MarketSource& source) {
  MarketData data;
  data.description = describe(folder, source);
  data.warnings = chain_warnings(folder);
  for (MarketFile& file : folder.files)
    data.symbols.push_back({file.bars.symbol, std::move(file.bars.bars), std::move(file.implied)});
  return data;
}

}  // namespace

MarketData load_market(const MarketSource& source) {
  if (source.folder.empty()) return generate_market(source.generated).data;
  MarketFolder folder = read_market_folder(source.folder, training_rules(source.folder_options));
  folder.findings.refuse_errors(source.folder.string());
  return data_of(folder, source);
}

MarketCheck check_market_folder(const MarketSource& source) {
  MarketFolder read = read_market_folder(source.folder, training_rules(source.folder_options));
  MarketCheck out;
  for (const MarketFile& file : read.files) {
    const std::string name = fmt::format("{:<8}", printable(file.bars.symbol));
    if (file.bars.bars.empty()) {
      out.summary += name + " no days could be read\n";
      continue;
    }
    const int64_t quoted = days_with_quotes(file);
    out.summary += fmt::format("{} {:>6} days  {} to {}  {}\n", name, file.bars.bars.size(),
                               date_text(file.bars.bars.front().date), date_text(file.bars.bars.back().date),
                               quoted > 0 ? fmt::format("quotes of options on {} days", quoted)
                                          : "no quotes of options: volatility is estimated from returns");
  }
  if (read.findings.errors() == 0) out.data = data_of(read, source);
  out.findings = std::move(read.findings);
  return out;
}

}  // namespace tandem
