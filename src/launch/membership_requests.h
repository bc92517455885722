// launch/membership_requests.h -- workers that join and leave a run on request (`tandem join`, `tandem leave`).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "fleet/coordinator.h"
#include "launch/launcher.h"
#include "launch/run_record.h"
#include "launch/worker_handle.h"

namespace tandem {

class MembershipRequests {
 public:
  struct Callbacks {  // into the launcher
    std::function<WorkerHandle&(DeviceSpec)> add_worker;
    std::function<void(std::vector<Action>)> carry_out;
  };
  MembershipRequests(const LaunchRequest& request, std::map<int, std::unique_ptr<WorkerHandle>>& workers,
                     Callbacks callbacks)
      : request_(request), workers_(workers), callbacks_(std::move(callbacks)) {}

  // The answer to a request: what was done, or {"error", "why", "do"}. `coordinator` and `record` are null until the
  // first workers are up.
  nlohmann::json answer(const nlohmann::json& body, Coordinator* coordinator, RunRecord* record, bool ending);

 private:
  nlohmann::json join(const nlohmann::json& body, Coordinator& coordinator, RunRecord& record);
  nlohmann::json leave(const nlohmann::json& body, Coordinator& coordinator, RunRecord& record);
  std::vector<int> present() const;

  const LaunchRequest& request_;
  std::map<int, std::unique_ptr<WorkerHandle>>& workers_;
  Callbacks callbacks_;
};

}  // namespace tandem
