#include <gtest/gtest.h>

#include "apps/web_test/timer.h"
#include "command/run_program.h"

namespace tandem {
namespace {

TEST(Timer, QuotesWhatSystemdAndCronWouldReadOtherwise) {
  const TimedCommand command{"tandem-daily",
                             "*-*-* 03:00:00",
                             "0 3 * * *",
                             "/data/my runs",
                             {"/usr/bin/tandem", "train", "--experience", "/data/50% \"new\"/it's.jsonl"}};
  EXPECT_NE(systemd_service(command).find(
                "ExecStart=/usr/bin/tandem train --experience \"/data/50%% \\\"new\\\"/it's.jsonl\"\n"),
            std::string::npos)
      << systemd_service(command);
  EXPECT_EQ(
      cron_line(command),
      "0 3 * * * cd '/data/my runs' && /usr/bin/tandem train --experience '/data/50\\% \"new\"/it'\\''s.jsonl' >> "
      "tandem-daily.log 2>&1");
}

// A user types these before there is anything to evaluate.
TEST(Agents, CommandsWithoutARunSayWhatToDo) {
  const Sandbox box;
  for (const char* command : {"eval", "act"}) {
    const ProgramResult result = box.run({command});
    EXPECT_EQ(result.code, 2) << result.err;
    EXPECT_NE(result.err.find("tandem train"), std::string::npos) << result.err;
  }
  EXPECT_EQ(box.run({"train", "web-agent", "--from", "last", "--experience", "x.jsonl"}).code, 2);
}

TEST(Agents, ADamagedListOfAgentsIsRefused) {
  const Sandbox box;
  box.write("runs/web-test-1/run.json", "{\"id\":\"web-test-1\"}");
  box.write("runs/web-test-1/agents.json", "{\"agents\":{\"analysis\":{\"runs\":[\"agents/none\"]}}}");
  EXPECT_EQ(box.run({"eval", "last"}).code, 2) << "a run that is not there has no checkpoint";
  box.write("runs/web-test-1/agents.json", "{");
  for (const char* command : {"eval", "act"}) EXPECT_EQ(box.run({command, "last"}).code, 5);
}

TEST(Agents, AnAgentThatNothingIsKnownOfHasNoEnvironment) {
  const Sandbox box;
  box.write("runs/web-test-1/run.json", "{\"id\":\"web-test-1\",\"recipe\":\"web-test\"}");
  box.write("runs/web-test-1/agents.json", "{\"agents\":{\"chess\":{\"runs\":[\"agents/chess\"]}}}");
  box.write("runs/web-test-1/agents/chess/run.json", "{\"id\":\"web-agent-1\",\"recipe\":\"web-agent\"}");
  const ProgramResult result = box.run({"eval", "last"});
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.err.find("requirements"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace tandem
