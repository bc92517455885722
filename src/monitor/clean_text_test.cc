// Names of strangers, on their way to terminals, pages and scrapers.
#include "monitor/clean_text.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(CleanText, LeavesWordsOfAllLanguagesAsTheyAre) {
  for (const char* text : {"", "tiny-20261115-190920-r6k9d0", "Wörtchen 日本語 🚀", "a \"b\" <c> & 'd'"})
    EXPECT_EQ(clean_text(text), text);
}

TEST(CleanText, TakesAwayWhatWouldDriveATerminalOrBreakAReader) {
  EXPECT_EQ(clean_text("\x1b]0;owned\x07\n\r\x7f"), " ]0;owned    ");
  EXPECT_EQ(clean_text("\xc2\x9b"
                       "31m"),
            " 31m");  // C1's way to write ESC [
  EXPECT_EQ(clean_text("a\xe2\x80\xae"
                       "b"),
            "a b");  // right to left from here on
  EXPECT_EQ(clean_text("\xff\xfe"), "\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(clean_text("\xc0\xaf"), "\xef\xbf\xbd\xef\xbf\xbd");          // an overlong slash
  EXPECT_EQ(clean_text("\xed\xa0\x80").find('\xed'), std::string::npos);  // half of a pair
  EXPECT_EQ(clean_text("ab\xe2\x80"), "ab\xef\xbf\xbd\xef\xbf\xbd");      // cut in the middle
}

TEST(CleanText, IsNeverLongerThanAskedAndNeverCutInsideACharacter) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += i % 2 ? "日" : "a";
  for (size_t most = 3; most < 900; ++most) {
    const std::string cut = clean_text(text, most);
    ASSERT_LE(cut.size(), most);
    ASSERT_EQ(clean_text(cut, 10'000), cut) << most;  // all of it is whole
    ASSERT_EQ(cut.find("\xef\xbf\xbd"), std::string::npos) << most;
  }
  EXPECT_EQ(clean_text(std::string(1000, 'x')).size(), kLongestName);
}

}  // namespace
}  // namespace tandem
