// config/members.h -- of the settings of a recipe that trains several models: any key may be given for one of them.
#pragma once

#include <string>
#include <vector>

namespace tandem {

// `<member>.<key>` sets a key for one member alone, but those in shared_keys().
struct HasMembers {
  virtual ~HasMembers() = default;
  virtual std::vector<std::string> members() const = 0;
  virtual std::vector<std::string> shared_keys() const = 0;
};

}  // namespace tandem
