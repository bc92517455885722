#include "base/plain_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/errors.h"
#include "base/printable.h"
#include "base/temp_dir.h"

namespace tandem {
namespace {

std::string file_text(const std::filesystem::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(PlainFile, IsMadeAndAppendedTo) {
  const TempDir dir;
  for (const char* word : {"one", "two"}) {
    const int fd = open_plain_file(dir / "log", O_WRONLY | O_APPEND);
    ASSERT_EQ(write(fd, word, 3), 3);
    close(fd);
  }
  EXPECT_EQ(file_text(dir / "log"), "onetwo");
}

TEST(PlainFile, WhatIsNoFileIsRefusedByNameAtOnce) {
  const TempDir dir;
  std::ofstream(dir / "precious") << "kept";
  std::filesystem::create_symlink(dir / "precious", dir / "link");
  std::filesystem::create_symlink(dir / "nothing", dir / "dangling");
  std::filesystem::create_directory(dir / "folder");
  ASSERT_EQ(mkfifo((dir / "pipe").c_str(), 0600), 0);
  const std::pair<const char*, const char*> cases[] = {
      {"link", "a symbolic link"}, {"dangling", "a symbolic link"}, {"folder", "a folder"}, {"pipe", "a pipe"}};
  for (const auto& [name, said] : cases) {
    for (const int flags : {O_WRONLY | O_APPEND, O_RDWR}) {
      try {
        close(open_plain_file(dir / name, flags));
        ADD_FAILURE() << name << " was opened";
      } catch (const ConfigError& error) {
        EXPECT_NE(std::string(error.what()).find(said), std::string::npos) << error.what();
        EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
      }
    }
    EXPECT_EQ(not_a_file(dir / name), said);
  }
  EXPECT_EQ(file_text(dir / "precious"), "kept");
  EXPECT_FALSE(std::filesystem::exists(dir / "nothing"));
  EXPECT_EQ(not_a_file(dir / "precious"), "");
  EXPECT_EQ(not_a_file(dir / "absent"), "");
}

TEST(PlainFile, AFileInThePlaceOfAFolderIsRefused) {
  const TempDir dir;
  std::ofstream(dir / "file") << "x";
  std::filesystem::create_symlink(dir.path(), dir / "link");
  refuse_misplaced(dir.path(), true);
  refuse_misplaced(dir / "absent", true);
  EXPECT_THROW(refuse_misplaced(dir / "file", true), ConfigError);
  EXPECT_THROW(refuse_misplaced(dir / "link", true), ConfigError);
}

TEST(PlainFile, APipeReadsAsNothing) {
  const TempDir dir;
  ASSERT_EQ(mkfifo((dir / "pipe").c_str(), 0600), 0);
  std::string line;
  std::ifstream pipe = read_plain_file(dir / "pipe");
  EXPECT_FALSE(std::getline(pipe, line));
  std::ofstream(dir / "file") << "words\n";
  std::ifstream file = read_plain_file(dir / "file");
  EXPECT_TRUE(std::getline(file, line));
  EXPECT_EQ(line, "words");
}

TEST(IoError, OpenFilesThatRunOutAreNoMatterOfMemory) {
  EXPECT_NE(IoError("x", EMFILE, "free memory").todo().find("ulimit -n"), std::string::npos);
  EXPECT_EQ(IoError("x", EMFILE, "raise a, or `ulimit -n`").todo(), "raise a, or `ulimit -n`");
  EXPECT_EQ(IoError("x", ENOMEM, "free memory").todo(), "free memory");
}

TEST(Printable, NothingSteersTheTerminal) {
  EXPECT_EQ(printable("a\x1b[31mb\r\nc\x7f\xc2\x9b d\xff"), "a?[31mb??c?? d?");
  EXPECT_EQ(printable("h\xc3\xa4user \xe6\x97\xa5"), "h\xc3\xa4user \xe6\x97\xa5");
  EXPECT_EQ(printable_lines("a\n\tb\x1b]0;title\x07"), "a\n\tb?]0;title?");
}

}  // namespace
}  // namespace tandem
