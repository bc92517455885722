#include "launch/rank_info.h"

#include <gtest/gtest.h>

#include <map>

#include "base/errors.h"

namespace tandem {
namespace {

using Environment = std::map<std::string, std::string>;

std::optional<RankInfo> info(const Environment& environment, std::optional<int64_t> flag = std::nullopt) {
  return rank_info_in(
      [&](const char* name) {
        const auto found = environment.find(name);
        return found == environment.end() ? nullptr : found->second.c_str();
      },
      flag);
}

std::string refused(const Environment& environment) {
  try {
    info(environment);
  } catch (const ConfigError& error) {
    return std::string(error.what()) + "|" + error.todo();
  }
  return "";
}

TEST(RankInfo, NoVariablesOrASizeOfOneMeanAloneAsEver) {
  EXPECT_FALSE(info({}));
  EXPECT_FALSE(info({{"RANK", "0"}, {"WORLD_SIZE", "1"}}));
  EXPECT_FALSE(info({{"WORLD_SIZE", "1"}}));
  EXPECT_FALSE(info({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}}));
  EXPECT_FALSE(info({{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}}));
  EXPECT_FALSE(info({{"LOCAL_RANK", "1"}}));
}

TEST(RankInfo, PlainVariables) {
  const auto p = info({{"RANK", "2"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}});
  ASSERT_TRUE(p);
  EXPECT_EQ(p->rank, 2);
  EXPECT_EQ(p->size, 3);
  EXPECT_EQ(p->local_rank, 2);
  EXPECT_EQ(p->address, "10.0.0.1");
  EXPECT_EQ(p->first_port, 29500);
  EXPECT_EQ(p->by, "RANK and WORLD_SIZE");
}

TEST(RankInfo, WithoutAnAddressItIsThisMachine) {
  EXPECT_EQ(info({{"RANK", "1"}, {"WORLD_SIZE", "2"}})->address, "127.0.0.1");
}

TEST(RankInfo, TorchrunsOwnStoreSitsOnItsPortSoOursIsTheNext) {
  const Environment torchrun = {{"RANK", "1"},
                                {"WORLD_SIZE", "4"},
                                {"LOCAL_RANK", "1"},
                                {"LOCAL_WORLD_SIZE", "2"},
                                {"MASTER_ADDR", "node1"},
                                {"MASTER_PORT", "29400"},
                                {"TORCHELASTIC_RUN_ID", "abc"},
                                {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
  const auto p = info(torchrun);
  EXPECT_EQ(p->first_port, 29401);
  EXPECT_EQ(p->by, "torchrun");
  EXPECT_EQ(p->address, "node1");
  EXPECT_NE(p->job.find("abc"), std::string::npos);
  Environment one = torchrun;
  one["LOCAL_WORLD_SIZE"] = "4";
  EXPECT_EQ(info(one)->address, "127.0.0.1") << "all ranks are on one machine: nobody else can reach it";
}

TEST(RankInfo, LocalRankOfTheFlagServesWhereTheVariableIsNotSet) {
  EXPECT_EQ(info({{"RANK", "5"}, {"WORLD_SIZE", "8"}}, 1)->local_rank, 1);
  EXPECT_EQ(info({{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "3"}}, 1)->local_rank, 3);
}

TEST(RankInfo, OpenMpiOnOneMachineGetsAPortFromItsJob) {
  const Environment first = {{"OMPI_COMM_WORLD_RANK", "0"},
                             {"OMPI_COMM_WORLD_SIZE", "3"},
                             {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                             {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
                             {"PMIX_NAMESPACE", "12345"}};
  Environment second = first, other = first;
  second["OMPI_COMM_WORLD_RANK"] = second["OMPI_COMM_WORLD_LOCAL_RANK"] = "2";
  other["PMIX_NAMESPACE"] = "777";
  EXPECT_EQ(info(first)->by, "Open MPI");
  EXPECT_EQ(info(second)->rank, 2);
  EXPECT_EQ(info(first)->first_port, info(second)->first_port);
  EXPECT_EQ(info(first)->job, info(second)->job);
  EXPECT_NE(info(first)->job, info(other)->job);
  EXPECT_EQ(info(first)->address, "127.0.0.1");
  EXPECT_GE(info(first)->first_port, 20000);
  EXPECT_LT(info(first)->first_port + RankInfo::kPorts, 32768) << "below what the system gives to clients";
}

TEST(RankInfo, OpenMpiOnSeveralMachinesNeedsAnAddress) {
  const Environment two = {
      {"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  EXPECT_NE(refused(two).find("MASTER_ADDR is not set"), std::string::npos);
  Environment with_address = two;
  with_address["MASTER_ADDR"] = "node1";
  EXPECT_EQ(info(with_address)->address, "node1");
}

TEST(RankInfo, SlurmTellsTheFirstNode) {
  const Environment srun = {{"SLURM_PROCID", "3"},
                            {"SLURM_NTASKS", "8"},
                            {"SLURM_LOCALID", "1"},
                            {"SLURM_JOB_ID", "99"},
                            {"SLURM_STEP_ID", "0"},
                            {"SLURM_STEP_NUM_NODES", "4"},
                            {"SLURM_STEP_NODELIST", "gpu[07-10]"}};
  const auto p = info(srun);
  EXPECT_EQ(p->address, "gpu07");
  EXPECT_EQ(p->rank, 3);
  EXPECT_EQ(p->local_rank, 1);
  EXPECT_NE(p->job.find("99.0"), std::string::npos);
  EXPECT_TRUE(info({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_LOCALID", "0"}}));
}

TEST(RankInfo, ABatchScriptIsNoStepOfSlurm) {
  EXPECT_FALSE(info({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "99"}, {"ENVIRONMENT", "BATCH"}}));
}

TEST(RankInfo, FirstHostOfSlurmsLists) {
  EXPECT_EQ(first_host("node1"), "node1");
  EXPECT_EQ(first_host("a,b,c"), "a");
  EXPECT_EQ(first_host("node[03-05,7],x"), "node03");
  EXPECT_EQ(first_host("r[1,2]n[3-4]"), "r1n[3-4]");  // two brackets: passed on as is, and resolving it says so
  EXPECT_EQ(first_host("a,node[1-2]"), "a");
  EXPECT_EQ(first_host("node[7]-ib"), "node7-ib");
  EXPECT_EQ(first_host(""), "");
  EXPECT_EQ(first_host("node["), "");
}

TEST(RankInfo, VariablesThatMakeNoSenseAreRefusedWithWhatToDo) {
  EXPECT_NE(refused({{"WORLD_SIZE", "3"}}).find("RANK is not"), std::string::npos);
  EXPECT_NE(refused({{"RANK", "1"}}).find("WORLD_SIZE is not"), std::string::npos);
  EXPECT_NE(refused({{"RANK", "3"}, {"WORLD_SIZE", "3"}}).find("RANK=3, but WORLD_SIZE=3"), std::string::npos);
  EXPECT_NE(refused({{"RANK", "x"}, {"WORLD_SIZE", "3"}}).find("RANK=x is not a number"), std::string::npos);
  EXPECT_NE(refused({{"RANK", "-1"}, {"WORLD_SIZE", "3"}}).find("not a number"), std::string::npos);
  EXPECT_NE(refused({{"RANK", "0"}, {"WORLD_SIZE", "0"}}).find("not a number"), std::string::npos);
  EXPECT_NE(refused({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "99999"}}).find("MASTER_PORT"),
            std::string::npos);
}

}  // namespace
}  // namespace tandem
