// apps/chess/pgn_file.h -- a file to which games are added: each whole or not at all, and what is there stays.
//
// A link is not followed, since whoever made it would choose what is written to; but one to what is no regular file is
// (/dev/stdout). Several programs may add games to one file, and a file that was taken away meanwhile is made again.
#pragma once

#include <filesystem>
#include <string_view>

namespace tandem::chess {

class PgnFile {
 public:
  // Makes the file where there is none. Throws ConfigError where it can't be written; a pipe that nobody reads can't.
  explicit PgnFile(std::filesystem::path file);
  // A new one, `stem`.pgn; `stem`-2.pgn and so on where that is there.
  static PgnFile make_new(const std::filesystem::path& stem);
  ~PgnFile();  // a file that it has made and that is still empty is taken away
  PgnFile(PgnFile&& other) noexcept;
  PgnFile& operator=(PgnFile&&) = delete;

  // `game` as pgn_of() has it. Throws IoError; nothing of the game is in the file then.
  void add(std::string_view game);
  const std::filesystem::path& path() const { return path_; }

 private:
  PgnFile(std::filesystem::path file, int fd, bool made);
  bool open();  // false: errno says why

  std::filesystem::path path_;
  int fd_ = -1;
  bool made_ = false;  // by this object
  bool regular_ = false;
};

}  // namespace tandem::chess
