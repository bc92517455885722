// market/folds.h -- purged walk-forward folds: train on the past, judge on what came after, again and again.
//
// All days of all symbols are put on one calendar. Its last `test_share` is cut into `folds` test periods, one after
// the other. What a fold trains on lies before its test period, and the newest part of that is its validation period:
//
//   |  training  | gap |  validation  | gap |  test  |                  gap = purge_days + embargo_days
//
// The gap is at least that many days of the calendar, and at least that many of each symbol's own, which may have
// holes. So neither the window of a day nor a contract that was open when training ended reaches into the days that a
// fold is judged by. Nothing from after the beginning of a test period is in its training, of any symbol.
//
// A test period begins on the day on which the one before ended: that day's close is the end of one portfolio and the
// first decision of the next, so that every day's return counts in exactly one fold.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "market/market_view.h"

namespace tandem {

struct FoldPlan {
  int32_t folds = 4;
  double test_share = .4;             // of the calendar, for all test periods together
  double validation_share = .15;      // of the days before a fold's test period, newest
  int32_t purge_days = kWindow + 21;  // window + days to expiry
  int32_t embargo_days = 5;
  int32_t warm_up_days = kWindow - 1;  // a symbol's first days, which a window or an indicator needs before it
  int32_t least_train_days = 60;       // of a symbol, in training; with fewer it is not in the fold
  int32_t least_days = 5;              // of a symbol, in validation and in test
  int32_t only = 0;                    // one of them alone must be possible, counted from 1; 0: all
};

// Rows of a MarketView. The ranges of a part are of different symbols, in their order.
struct MarketFold {
  int32_t train_last = 0, validation_first = 0, validation_last = 0;  // dates
  int32_t test_first = 0, test_last = 0;
  std::vector<MarketView::Range> train, validation, test;
  std::vector<std::string> left_out;  // "NEW: 12 days before 20240102", for the user
};

// `names`: of the view's symbols by their number, for messages. A symbol without enough days is left out of a fold, and
// the fold says so. With `only`, that fold alone is returned. Throws ConfigError where the plan is impossible, where a
// symbol is too short for every fold, and where a fold is left with no symbol.
std::vector<MarketFold> walk_forward_folds(const MarketView& market, const std::vector<std::string>& names,
                                           const FoldPlan& plan);

}  // namespace tandem
