// launch/rendezvous.h -- how the processes that another launcher started find each other, and make sure of it.
//
// Rank 0 listens on one address and one port until all ranks are there, and not a moment longer: the links stay, a
// worker that is started again needs no new one. The others try the ports that rank 0 may have taken until one proves
// that it knows the secret and is of the same job.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "launch/link.h"
#include "launch/rank_info.h"
#include "launch/worker_program.h"

namespace tandem {

// How long ranks wait for each other: TANDEM_JOIN_SECONDS, else 60.
double join_seconds(const Variables& variable);

// Rank 0's side.
class Gathering {
 public:
  // Listens. Throws ConfigError if it can't, or if a rank 0 of this job is there already.
  Gathering(const RankInfo& info, std::string secret, Build build);
  ~Gathering();
  Gathering(const Gathering&) = delete;
  Gathering& operator=(const Gathering&) = delete;

  // Returns once every rank is there, and listens no more. Throws ConfigError that tells who is missing, and who was
  // refused and why. Says that it waits, after a while, unless `quiet`.
  void gather(double seconds, bool quiet);
  // The run is over: all ranks end with this code. Who has not come yet is given 3 seconds to hear it.
  void dismiss(int code);

  const RankInfo& info() const { return info_; }
  const std::shared_ptr<const WorkerProgram>& worker() const { return build_.worker; }  // what all ranks run
  Link& link(int rank) { return *links_.at(rank); }
  const std::string& host(int rank) const { return hosts_.at(rank); }
  std::string describe() const;  // "3 by torchrun on node1, node2"
  // Workers prove themselves to each other by this; `nonce` makes it another one for each run.
  std::string mesh_secret(const std::string& nonce) const;
  std::string address() const { return address_; }  // what rank 0 is reached by

 private:
  struct Guest;
  void listen_somewhere();
  void check_alone(int port) const;
  void take_guests();
  bool hear(Guest& guest);
  void introduced(Guest& guest, const nlohmann::json& words);
  void refuse(const std::string& words, const std::string& todo);
  void serve(double seconds);
  std::string missing() const;
  void close_listener();

  RankInfo info_;
  std::string address_;
  Build build_;
  Credentials credentials_;
  int listener_ = -1, port_ = 0;
  std::vector<std::unique_ptr<Guest>> guests_;  // who connected and is not a rank yet
  std::map<int, std::unique_ptr<Link>> links_;
  std::map<int, std::string> hosts_;
  std::map<std::string, std::string> refused_;  // in words, and what to do about it
  bool quiet_ = true;
};

// The others' side: waits for rank 0. Throws ConfigError that says what was found instead.
std::unique_ptr<Link> join_rank_zero(const RankInfo& info, const std::string& secret, const Build& build,
                                     double seconds);

std::string mesh_secret_of(const std::string& secret, const std::string& job, const std::string& nonce);

}  // namespace tandem
