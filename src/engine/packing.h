// engine/packing.h -- documents of different lengths as rows of one fixed length.
//
// Both ways know the lengths of the documents and nothing of their contents. Which tokens a row holds is a function of
// (lengths, row length, seed, epoch, row): it can be asked for any row at any time, from any thread, so a loader writes
// rows in any order and a resume reads nothing twice. The number of rows is the same in every epoch: it is the size of
// the data set. The order of rows within an epoch is the sampler's.
//   ContiguousPacking   for next-token models (GPT-2): the documents one after the other, each followed by one
//                       end-of-text token, cut every `row_length` tokens. Documents cross from row to row.
//   FirstFitPacking     for models that see a whole row (BERT): several documents in a row, none cut unless it is
//                       longer than a row; segment numbers and positions keep attention within a document.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace tandem {

// Tokens [begin, begin + length) of a document are tokens [at, at + length) of the row.
struct PackedSpan {
  int64_t document = 0, begin = 0, length = 0, at = 0;
  bool operator==(const PackedSpan&) const = default;
};

struct PackingSummary {
  int64_t documents = 0, empty = 0, split = 0;  // split: longer than a row, so in several pieces
  int64_t tokens = 0;                           // those of the documents, and end-of-text
  int64_t rows = 0, row_length = 0;
  int64_t padding = 0;  // tokens of the rows that hold nothing
  int64_t dropped = 0;  // tokens in no row
  // "1,203 rows of 1,024: 1,231,007 tokens of 1,800 documents, 0.1 % padding"
  std::string text() const;
};

enum class Remainder {
  kPad,   // the last row is padded: every token is in a row
  kDrop,  // the last tokens of the epoch are left out, others in each shuffled epoch
};
enum class DocumentOrder { kShuffled, kAsGiven };

class ContiguousPacking {
 public:
  // Throws ConfigError for a row length below 1, a negative length, and where there is not one row.
  ContiguousPacking(std::vector<int64_t> lengths, int64_t row_length, uint64_t seed,
                    Remainder remainder = Remainder::kPad, DocumentOrder order = DocumentOrder::kShuffled);

  int64_t rows() const { return summary_.rows; }
  const PackingSummary& summary() const { return summary_; }
  // In the order of the row. `shift` 1 gives what is to be predicted: the same row, one token later; the epoch's last
  // token has no successor. Token number lengths[document] of a document is its end-of-text.
  std::vector<PackedSpan> row(int64_t epoch, int64_t row, int64_t shift = 0) const;

 private:
  struct Epoch {
    int64_t number = 0;
    std::vector<int64_t> documents, begins;  // in their order, and where each begins in the epoch's tokens
  };
  std::shared_ptr<const Epoch> epoch_order(int64_t number) const;

  std::vector<int64_t> lengths_;
  uint64_t seed_;
  DocumentOrder order_;
  PackingSummary summary_;
  mutable std::mutex mutex_;
  mutable std::vector<std::shared_ptr<const Epoch>> orders_;  // the two asked for last: a loader is ahead of the step
};

// First fit, longest first: each document goes to the first row that still has room. Which of the documents of equal
// length is taken follows from (seed, epoch), so the rows of another epoch have the same lengths and other neighbours.
class FirstFitPacking {
 public:
  // A document longer than a row is cut into pieces of a row; the last piece is packed as a document. Throws
  // ConfigError as above.
  FirstFitPacking(std::vector<int64_t> lengths, int64_t row_length, uint64_t seed);

  int64_t rows() const { return summary_.rows; }
  const PackingSummary& summary() const { return summary_; }
  std::vector<PackedSpan> row(int64_t epoch, int64_t row) const;

 private:
  struct Piece {
    int64_t document = 0, begin = 0, length = 0;
  };
  std::vector<Piece> pieces_;          // longest first, then in the order of the documents
  std::vector<int64_t> slots_;         // places in pieces_, row by row
  std::vector<int64_t> row_begins_;    // where each row's slots begin; one more than rows
  std::vector<int64_t> length_begin_;  // where the pieces of a length begin, longest first; one more at the end
  uint64_t seed_;
  PackingSummary summary_;
};

// Which document of the row each token belongs to (1, 2, ...; 0: padding), and its place in it.
template <class Integer>
void write_segments(std::span<const PackedSpan> row, std::span<Integer> segments, std::span<Integer> positions) {
  for (size_t i = 0; i < segments.size(); ++i) segments[i] = positions[i] = 0;
  for (size_t s = 0; s < row.size(); ++s)
    for (int64_t i = 0; i < row[s].length; ++i) {
      segments[static_cast<size_t>(row[s].at + i)] = static_cast<Integer>(s + 1);
      positions[static_cast<size_t>(row[s].at + i)] = static_cast<Integer>(i);
    }
}

}  // namespace tandem
