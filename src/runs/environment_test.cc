#include "runs/environment.h"

#include <gtest/gtest.h>
#include <stdlib.h>

namespace tandem {
namespace {

TEST(Environment, DescribesTheMachineAndCarriesTheVersionsGiven) {
  const auto env = describe_environment({{"tandem", "0.1.0"}});
  EXPECT_EQ(env["versions"]["tandem"], "0.1.0");
  EXPECT_FALSE(env["host"].get<std::string>().empty());
  EXPECT_FALSE(env["kernel"].get<std::string>().empty());
  EXPECT_GT(env["memory_bytes"].get<uint64_t>(), uint64_t{1} << 20);
  EXPECT_GE(env["cpu"]["logical"].get<int>(), 1);
  EXPECT_FALSE(env["cpu"]["flags"].get<std::string>().empty());
  EXPECT_FALSE(env["command"].empty());
}

TEST(Environment, SecretsNeverReachTheFile) {
  for (const char* name :
       {"TANDEM_TOKEN", "MLFLOW_TRACKING_PASSWORD", "RAY_AUTH_X", "TANDEM_API_KEY", "SLURM_JWT", "NCCL_PRIVATE"})
    setenv(name, "hunter2", 1);
  setenv("MLFLOW_TRACKING_URI", "https://me:hunter2@mlflow.example/x", 1);
  setenv("SOMETHING_ELSE", "hunter2", 1);
  setenv("OMP_NUM_THREADS", "1", 1);
  const auto env = describe_environment(nlohmann::json::object());
  EXPECT_EQ(env.dump().find("hunter2"), std::string::npos);
  EXPECT_EQ(env["environment"]["TANDEM_TOKEN"], "***");
  EXPECT_EQ(env["environment"]["OMP_NUM_THREADS"], "1");
  EXPECT_EQ(env["environment"]["MLFLOW_TRACKING_URI"], "https://***@mlflow.example/x");
  EXPECT_FALSE(env["environment"].contains("SOMETHING_ELSE"));
}

TEST(Environment, CredentialsInsideAddressesAreHidden) {
  EXPECT_EQ(without_credentials("a http://u:p@h/x b ftp://q@h"), "a http://***@h/x b ftp://***@h");
  EXPECT_EQ(without_credentials("http://h/x@y"), "http://h/x@y");
  EXPECT_EQ(without_credentials("://"), "://");
}

}  // namespace
}  // namespace tandem
