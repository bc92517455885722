// recipes/web_card_environment.h -- a web-test agent's world for a worker, which may drive a card: it knows the
// kernels.
#pragma once

#include <optional>

#include "engine/card.h"
#include "recipes/web_environment.h"

namespace tandem {

class WebCardEnvironment : public WebEnvironment {
 public:
  using WebEnvironment::WebEnvironment;
  std::optional<CardWorld> on_card() const override {
    const auto advance = card() ? reinterpret_cast<CardAdvance>(card()->part("web")) : nullptr;
    if (!advance) return std::nullopt;
    return CardWorld{advance, agent_};
  }
};

}  // namespace tandem
