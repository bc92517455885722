#include "rl/dqn/state_line.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

using Floats = std::vector<float>;

TEST(StateLine, TakesAnObjectOrABareArray) {
  Floats out;
  EXPECT_EQ(read_state_line("{\"state\": [1, -2.5, 3e-2], \"id\": \"a\", \"t\": 4, \"x\": null}", 3, out), "");
  EXPECT_EQ(read_state_line(" [4,5,6]\r", 3, out), "");
  EXPECT_EQ(out, (Floats{1, -2.5, 0.03f, 4, 5, 6}));
}

TEST(StateLine, SaysWhatIsWrongAndKeepsNothingOfIt) {
  const std::pair<const char*, const char*> cases[] = {
      {"[1,2]", "has 2 numbers, not 3"},
      {"[1,2,3,4]", "more than 3"},
      {"[1,NaN,3]", "NaN"},
      {"[1,1e39,3]", "place 1 that no float holds"},
      {"[1,\"2\",3]", "a string at place 1"},
      {"[1,[2],3]", "an array at place 1"},
      {"{\"state\":[1,2,3],\"state\":[1,2,3]}", "twice"},
      {"{\"states\":1}", "no \"state\""},
      {"{\"states\":[1,2,3]}", "beside \"state\""},
      {"{\"state\":7}", "is a number"},
      {"{\"state\":{}}", "an object"},
      {"7", "neither an array nor an object"},
      {"[1,2,3", "is not JSON"},
      {"[1,2,3] x", "is not JSON"},
      {"", "is not JSON"},
  };
  for (const auto& [line, reason] : cases) {
    Floats out{9};
    EXPECT_NE(read_state_line(line, 3, out).find(reason), std::string::npos)
        << line << " -> " << read_state_line(line, 3, out);
    EXPECT_EQ(out, Floats{9}) << line;
  }
}

TEST(StateLine, RefusesALineThatIsTooLong) {
  Floats out;
  EXPECT_NE(read_state_line("[" + std::string(kLongestStateLine, ' ') + "1]", 1, out), "");
}

}  // namespace
}  // namespace tandem
