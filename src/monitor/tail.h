// monitor/tail.h -- what was added to a file of lines since the last look, never more than its end.
//
// A file that was replaced (a resume cuts metrics.jsonl), cut or removed is begun anew, from its end. That it is
// another is seen by its inode, its size, and by what stands before the place that was read to: inodes come back.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace tandem {

class Tail {
 public:
  // Of more than `most` new bytes the first are passed over.
  explicit Tail(std::filesystem::path path, size_t most = size_t{64} << 10) : path_(std::move(path)), most_(most) {}
  // Whole lines, each with its newline; valid until the next call. Empty where there are none, or no file.
  std::string_view read_new();
  bool began_anew() const { return began_anew_; }  // of the last call: another file than before, or none any more
  double modified() const { return modified_; }    // Unix; 0: no file

 private:
  std::filesystem::path path_;
  size_t most_;
  uint64_t offset_ = 0;
  ino_t inode_ = 0;
  double modified_ = 0;
  bool began_anew_ = false;
  bool inside_ = false;  // offset_ is in the middle of a line that is passed over
  std::string text_;
};

// Calls `take(line)`, without the newline.
template <class Take>
void for_each_line(std::string_view text, Take take) {
  for (size_t end; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1))
    take(text.substr(0, end));
}

}  // namespace tandem
