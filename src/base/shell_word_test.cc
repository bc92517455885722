#include "base/shell_word.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>

namespace tandem {
namespace {

// What bash makes of the word.
std::string as_bash_reads(const std::string& word) {
  FILE* bash = popen(("bash -c \"$(cat <<'EnD'\nprintf %s " + word + "\nEnD\n)\"").c_str(), "r");
  std::string out;
  std::array<char, 256> block;
  for (size_t got; (got = fread(block.data(), 1, block.size(), bash)) > 0;) out.append(block.data(), got);
  pclose(bash);
  return out;
}

TEST(ShellWord, IsOneWordThatBashReadsByteForByteAndATerminalShowsAsItIs) {
  for (const std::string text : {"runs/tiny-1", "my runs/it's", "", "$(touch owned)", "`id`", "a;b", "~x", "-",
                                 "y\x1b[2Jy", "run-\xff\xfe", "it's\x07\\n",
                                 "gr\xc3\xbc\xc3\x9f"
                                 "e",
                                 "\xc2\x9b"
                                 "31m"}) {
    const std::string word = shell_word(text);
    for (const char c : word) EXPECT_FALSE(static_cast<unsigned char>(c) < 0x20 || c == 0x7F) << word;
    EXPECT_EQ(word.find("\xc2\x9b"), std::string::npos) << word;
    EXPECT_EQ(as_bash_reads(word), text) << word;
  }
}

}  // namespace
}  // namespace tandem
