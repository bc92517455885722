#include "engine/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <thread>

#include "base/errors.h"
#include "kernels/permutation.h"

namespace tandem {
namespace {

using Token = std::pair<int64_t, int64_t>;  // document, number in it

std::vector<int64_t> some_lengths(uint32_t seed, int64_t longest) {
  std::mt19937 random(seed);
  std::vector<int64_t> lengths(1 + random() % 200);
  for (int64_t& length : lengths)
    length = random() % 8 == 0 ? 0 : static_cast<int64_t>(random() % static_cast<uint32_t>(longest));
  if (lengths.size() == 1) lengths[0] += 40;
  return lengths;
}

std::vector<Token> tokens_of(const std::vector<PackedSpan>& row) {
  std::vector<Token> tokens;
  int64_t at = 0;
  for (const PackedSpan& span : row) {
    EXPECT_EQ(span.at, at) << "no holes";
    EXPECT_GT(span.length, 0);
    for (int64_t i = 0; i < span.length; ++i) tokens.emplace_back(span.document, span.begin + i);
    at += span.length;
  }
  return tokens;
}

// The slow way: all tokens of the epoch in one list, cut into rows.
std::vector<Token> whole_epoch(const std::vector<int64_t>& lengths, uint64_t seed, uint64_t epoch) {
  std::vector<Token> all;
  const Permutation order(lengths.size(), seed, epoch);
  for (size_t i = 0; i < lengths.size(); ++i) {
    const int64_t document = static_cast<int64_t>(order.at(i));
    for (int64_t t = 0; t <= lengths[static_cast<size_t>(document)]; ++t) all.emplace_back(document, t);
  }
  return all;
}

TEST(ContiguousPacking, RowsAreTheEpochsTokensCutAndTargetsAreOneLater) {
  for (uint32_t trial = 0; trial < 60; ++trial) {
    const std::vector<int64_t> lengths = some_lengths(trial, 40);
    const int64_t length = 1 + trial % 33;
    const ContiguousPacking packing(lengths, length, /*seed=*/trial);
    for (int64_t epoch : {0, 1, 2}) {
      std::vector<Token> want = whole_epoch(lengths, trial, static_cast<uint64_t>(epoch)), got, targets;
      ASSERT_EQ(packing.summary().tokens, static_cast<int64_t>(want.size()));
      for (int64_t row = 0; row < packing.rows(); ++row) {
        const auto tokens = tokens_of(packing.row(epoch, row)), later = tokens_of(packing.row(epoch, row, 1));
        ASSERT_TRUE(static_cast<int64_t>(tokens.size()) == length || row + 1 == packing.rows());
        got.insert(got.end(), tokens.begin(), tokens.end());
        targets.insert(targets.end(), later.begin(), later.end());
      }
      ASSERT_EQ(got, want);
      want.erase(want.begin());
      ASSERT_EQ(targets, want);
    }
    EXPECT_EQ(packing.rows() * length - packing.summary().padding, packing.summary().tokens);
  }
}

TEST(ContiguousPacking, WithoutPaddingTheRestIsLeftOutAndTold) {
  const std::vector<int64_t> lengths{5, 0, 7, 3};  // with end-of-text 19 tokens
  const ContiguousPacking packing(lengths, 6, 1, Remainder::kDrop, DocumentOrder::kAsGiven);
  EXPECT_EQ(packing.rows(), 3);
  EXPECT_EQ(packing.summary().dropped, 1);
  EXPECT_EQ(packing.summary().text(),
            "3 rows of 6: 19 tokens of 4 documents, 0.0 % padding; the last 1 tokens of an epoch are left out; "
            "1 documents are empty");
  EXPECT_EQ(packing.row(3, 1), (std::vector<PackedSpan>{{1, 0, 1, 0}, {2, 0, 5, 1}}));
  EXPECT_EQ(packing.row(3, 2, 1), (std::vector<PackedSpan>{{2, 6, 2, 0}, {3, 0, 4, 2}}));
}

// The slow way: every document, longest first, into the first row with room.
std::vector<std::vector<int64_t>> slow_first_fit(std::vector<int64_t> lengths, int64_t row_length) {
  std::vector<int64_t> pieces;
  for (int64_t length : lengths)
    for (; length > 0; length -= row_length) pieces.push_back(std::min(length, row_length));
  std::sort(pieces.rbegin(), pieces.rend());
  std::vector<std::vector<int64_t>> rows;
  std::vector<int64_t> room;
  for (int64_t piece : pieces) {
    size_t row = 0;
    while (row < rows.size() && room[row] < piece) ++row;
    if (row == rows.size()) {
      rows.emplace_back();
      room.push_back(row_length);
    }
    rows[row].push_back(piece);
    room[row] -= piece;
  }
  return rows;
}

TEST(FirstFitPacking, EveryTokenIsInOneRowAndRowsAreThoseOfTheSlowWay) {
  for (uint32_t trial = 0; trial < 60; ++trial) {
    const int64_t length = 8 + trial % 25;
    const std::vector<int64_t> lengths = some_lengths(trial, trial % 3 == 0 ? 3 * length : length + 1);
    const FirstFitPacking packing(lengths, length, trial);
    const auto slow = slow_first_fit(lengths, length);
    ASSERT_EQ(packing.rows(), static_cast<int64_t>(slow.size()));
    std::vector<Token> all;
    for (size_t d = 0; d < lengths.size(); ++d)
      for (int64_t t = 0; t < lengths[d]; ++t) all.emplace_back(d, t);
    for (int64_t epoch : {0, 1, 5}) {
      std::vector<Token> got;
      for (int64_t row = 0; row < packing.rows(); ++row) {
        std::vector<int64_t> found;
        for (const PackedSpan& span : packing.row(epoch, row)) {
          found.push_back(span.length);
          ASSERT_EQ(span.begin % length, 0) << "cut at multiples of the row length alone";
          ASSERT_TRUE(span.begin + span.length == lengths[static_cast<size_t>(span.document)] || span.length == length);
        }
        ASSERT_EQ(found, slow[static_cast<size_t>(row)]);
        const auto tokens = tokens_of(packing.row(epoch, row));
        ASSERT_LE(static_cast<int64_t>(tokens.size()), length);
        got.insert(got.end(), tokens.begin(), tokens.end());
      }
      std::sort(got.begin(), got.end());
      ASSERT_EQ(got, all);
    }
  }
}

TEST(FirstFitPacking, AnotherEpochHasOtherNeighboursAndSegmentsKeepDocumentsApart) {
  const FirstFitPacking packing(std::vector<int64_t>(64, 5), 12, 9);
  EXPECT_EQ(packing.rows(), 32);
  int same = 0;
  for (int64_t row = 0; row < packing.rows(); ++row) same += packing.row(0, row) == packing.row(1, row);
  EXPECT_LT(same, 8);
  const std::vector<PackedSpan> row = packing.row(0, 3);
  std::vector<int32_t> segments(12, -1), positions(12, -1);
  write_segments<int32_t>(row, segments, positions);
  EXPECT_EQ(segments, (std::vector<int32_t>{1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 0, 0}));
  EXPECT_EQ(positions, (std::vector<int32_t>{0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 0}));
}

TEST(Packing, RowsAreTheSameInAnyOrderFromAnyThread) {
  const std::vector<int64_t> lengths = some_lengths(3, 40);
  const ContiguousPacking ahead(lengths, 16, 5), back(lengths, 16, 5);
  std::vector<std::vector<PackedSpan>> rows(static_cast<size_t>(4 * ahead.rows()));
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < 4; ++t)  // four epochs at once, where two are kept
    threads.emplace_back([&, t] {
      for (int64_t row = 0; row < ahead.rows(); ++row)
        rows[static_cast<size_t>(t * ahead.rows() + row)] = ahead.row(t, row);
    });
  for (std::thread& thread : threads) thread.join();
  for (int64_t t = 3; t >= 0; --t)
    for (int64_t row = ahead.rows() - 1; row >= 0; --row)
      ASSERT_EQ(back.row(t, row), rows[static_cast<size_t>(t * ahead.rows() + row)]);
}

TEST(Packing, WhatCanNotBePackedIsRefusedWithItsNumber) {
  EXPECT_THROW(ContiguousPacking({3}, 0, 1), ConfigError);
  EXPECT_THROW(ContiguousPacking({}, 4, 1), ConfigError);
  EXPECT_THROW(FirstFitPacking({0, 0}, 4, 1), ConfigError);
  EXPECT_THROW(ContiguousPacking({2}, 4, 1, Remainder::kDrop), ConfigError);
  try {
    FirstFitPacking({3, -1}, 4, 1);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "document 1 has -1 tokens");
  }
}

}  // namespace
}  // namespace tandem
