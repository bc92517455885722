// market/parquet.h -- a Parquet file as CSV text.
//
// Apache Arrow's C++ library is in no Debian release that we build on, and the one inside pyarrow's wheel is tied to
// the wheel's compiler and Python. So a Python process with pyarrow reads the file and writes CSV to a pipe; its
// program (market/parquet_to_csv.py) is compiled in as a text. A machine without Parquet files needs no pyarrow.
#pragma once

#include <span>
#include <string>

#include "market/csv_rows.h"

namespace tandem {

// The wanted columns, with a header, for read_csv(); row n of the file is line n + 1. `fd` is the open file, `name` for
// messages, `python` an interpreter to use; empty: the active virtual environment's, the project's own, python3 of the
// PATH, the first that has pyarrow. A file that is no Parquet or lacks columns is an error in `findings`, and the
// result is empty. Throws ConfigError if there is no Python with pyarrow.
std::string parquet_as_csv(int fd, const std::string& name, std::span<const MarketColumn> columns,
                           const std::string& python, DataFindings& findings);

}  // namespace tandem
