#include "engine/packing.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "base/errors.h"
#include "kernels/permutation.h"

namespace tandem {
namespace {

// "1,234,567".
std::string grouped(int64_t number) {
  const std::string digits = std::to_string(number);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

void check_lengths(std::span<const int64_t> lengths, int64_t row_length) {
  if (row_length < 1)
    throw ConfigError(fmt::format("rows of {} tokens", row_length), "a row holds at least one", "set a longer row");
  for (size_t i = 0; i < lengths.size(); ++i)
    if (lengths[i] < 0)
      throw ConfigError(fmt::format("document {} has {} tokens", i, lengths[i]), "a length is a number from 0 up",
                        "look at the index of the corpus");
}

void check_rows(const PackingSummary& summary) {
  if (summary.rows > 0) return;
  throw ConfigError(fmt::format("{} tokens of {} documents do not fill one row of {}", summary.tokens,
                                summary.documents, summary.row_length),
                    "an epoch needs at least one row",
                    "use shorter rows or more text, or pad the last row (Remainder::kPad)");
}

PackingSummary summary_of(std::span<const int64_t> lengths, int64_t row_length) {
  PackingSummary summary{.documents = static_cast<int64_t>(lengths.size()), .row_length = row_length};
  for (const int64_t length : lengths) {
    summary.empty += length == 0;
    summary.tokens += length;
  }
  return summary;
}

// Rows by the room that is left in them: the first one with enough of it, in a logarithm of their number.
class RoomTree {
 public:
  RoomTree(int64_t most_rows, int64_t row_length) {
    while (leaves_ < most_rows) leaves_ *= 2;
    most_.assign(static_cast<size_t>(2 * leaves_), row_length);
  }
  int64_t take(int64_t length) {
    int64_t node = 1;
    while (node < leaves_) node = 2 * node + (most_[static_cast<size_t>(2 * node)] < length);
    const int64_t row = node - leaves_;
    most_[static_cast<size_t>(node)] -= length;
    for (node /= 2; node > 0; node /= 2)
      most_[static_cast<size_t>(node)] =
          std::max(most_[static_cast<size_t>(2 * node)], most_[static_cast<size_t>(2 * node + 1)]);
    return row;
  }

 private:
  int64_t leaves_ = 1;
  std::vector<int64_t> most_;
};

}  // namespace

std::string PackingSummary::text() const {
  std::string text = fmt::format("{} rows of {}: {} tokens of {} documents, {:.1f} % padding", grouped(rows),
                                 grouped(row_length), grouped(tokens), grouped(documents),
                                 100.0 * static_cast<double>(padding) / static_cast<double>(rows * row_length));
  if (dropped > 0) text += fmt::format("; the last {} tokens of an epoch are left out", grouped(dropped));
  if (split > 0) text += fmt::format("; {} documents are longer than a row and were cut", grouped(split));
  if (empty > 0) text += fmt::format("; {} documents are empty", grouped(empty));
  return text;
}

// ---- contiguous ----

ContiguousPacking::ContiguousPacking(std::vector<int64_t> lengths, int64_t row_length, uint64_t seed,
                                     Remainder remainder, DocumentOrder order)
    : lengths_(std::move(lengths)), seed_(seed), order_(order) {
  check_lengths(lengths_, row_length);
  summary_ = summary_of(lengths_, row_length);
  summary_.tokens += summary_.documents;  // end-of-text
  if (remainder == Remainder::kPad) {
    summary_.rows = (summary_.tokens + row_length - 1) / row_length;
    summary_.padding = summary_.rows * row_length - summary_.tokens;
  } else {
    summary_.rows = summary_.tokens / row_length;
    summary_.dropped = summary_.tokens - summary_.rows * row_length;
  }
  check_rows(summary_);
}

std::shared_ptr<const ContiguousPacking::Epoch> ContiguousPacking::epoch_order(int64_t number) const {
  if (order_ == DocumentOrder::kAsGiven) number = 0;
  std::lock_guard lock(mutex_);
  for (const auto& known : orders_)
    if (known->number == number) return known;
  auto made = std::make_shared<Epoch>();
  made->number = number;
  const int64_t count = static_cast<int64_t>(lengths_.size());
  const Permutation shuffled(static_cast<uint64_t>(count), seed_, static_cast<uint64_t>(number));
  int64_t begin = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t document =
        order_ == DocumentOrder::kAsGiven ? i : static_cast<int64_t>(shuffled.at(static_cast<uint64_t>(i)));
    made->documents.push_back(document);
    made->begins.push_back(begin);
    begin += lengths_[static_cast<size_t>(document)] + 1;
  }
  if (orders_.size() == 2) orders_.erase(orders_.begin());
  orders_.push_back(made);
  return made;
}

std::vector<PackedSpan> ContiguousPacking::row(int64_t epoch, int64_t row, int64_t shift) const {
  if (row < 0 || row >= summary_.rows || shift < 0) throw std::out_of_range("no such row");
  const std::shared_ptr<const Epoch> order = epoch_order(epoch);
  int64_t from = row * summary_.row_length + shift;
  const int64_t end = std::min(from + summary_.row_length, summary_.tokens);
  std::vector<PackedSpan> spans;
  size_t i = static_cast<size_t>(std::upper_bound(order->begins.begin(), order->begins.end(), from) -
                                 order->begins.begin() - 1);
  for (int64_t at = 0; from < end; ++i) {
    const int64_t document = order->documents[i], begin = from - order->begins[i];
    const int64_t length = std::min(lengths_[static_cast<size_t>(document)] + 1 - begin, end - from);
    spans.push_back({document, begin, length, at});
    from += length;
    at += length;
  }
  return spans;
}

// ---- first fit ----

FirstFitPacking::FirstFitPacking(std::vector<int64_t> lengths, int64_t row_length, uint64_t seed) : seed_(seed) {
  check_lengths(lengths, row_length);
  summary_ = summary_of(lengths, row_length);
  for (size_t d = 0; d < lengths.size(); ++d) {
    summary_.split += lengths[d] > row_length;
    for (int64_t begin = 0; begin < lengths[d]; begin += row_length)
      pieces_.push_back({static_cast<int64_t>(d), begin, std::min(row_length, lengths[d] - begin)});
  }
  std::stable_sort(pieces_.begin(), pieces_.end(), [](const Piece& a, const Piece& b) { return a.length > b.length; });
  length_begin_.assign(static_cast<size_t>(row_length) + 2, 0);
  for (const Piece& piece : pieces_) ++length_begin_[static_cast<size_t>(row_length - piece.length + 1)];
  std::partial_sum(length_begin_.begin(), length_begin_.end(), length_begin_.begin());  // longest first

  RoomTree room(std::max<int64_t>(1, static_cast<int64_t>(pieces_.size())), row_length);
  std::vector<int64_t> row_of(pieces_.size());
  for (size_t p = 0; p < pieces_.size(); ++p) {
    row_of[p] = room.take(pieces_[p].length);
    summary_.rows = std::max(summary_.rows, row_of[p] + 1);
  }
  check_rows(summary_);
  summary_.padding = summary_.rows * row_length - summary_.tokens;
  row_begins_.assign(static_cast<size_t>(summary_.rows) + 1, 0);
  for (const int64_t row : row_of) ++row_begins_[static_cast<size_t>(row) + 1];
  std::partial_sum(row_begins_.begin(), row_begins_.end(), row_begins_.begin());
  std::vector<int64_t> next(row_begins_.begin(), row_begins_.end() - 1);
  slots_.resize(pieces_.size());
  for (size_t p = 0; p < pieces_.size(); ++p)
    slots_[static_cast<size_t>(next[static_cast<size_t>(row_of[p])]++)] = static_cast<int64_t>(p);
}

std::vector<PackedSpan> FirstFitPacking::row(int64_t epoch, int64_t row) const {
  if (row < 0 || row >= summary_.rows) throw std::out_of_range("no such row");
  std::vector<PackedSpan> spans;
  int64_t at = 0;
  for (int64_t s = row_begins_[static_cast<size_t>(row)]; s < row_begins_[static_cast<size_t>(row) + 1]; ++s) {
    // The slot is for any piece of this length: the epoch's shuffle says which.
    const int64_t slot = slots_[static_cast<size_t>(s)], length = pieces_[static_cast<size_t>(slot)].length;
    const size_t of_length = static_cast<size_t>(summary_.row_length - length);
    const int64_t first = length_begin_[of_length], count = length_begin_[of_length + 1] - first;
    const Permutation shuffled(static_cast<uint64_t>(count), seed_, static_cast<uint64_t>(epoch));
    const Piece& piece =
        pieces_[static_cast<size_t>(first + static_cast<int64_t>(shuffled.at(static_cast<uint64_t>(slot - first))))];
    spans.push_back({piece.document, piece.begin, piece.length, at});
    at += piece.length;
  }
  return spans;
}

}  // namespace tandem
