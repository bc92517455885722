// recipes/baselines.h -- PyTorch's usual step for a recipe: the same net, optimizer and batch, in Python.
//
// `tandem bench --baselines` runs it with torch, nn, F, device, batch and block(inputs, outputs, norm) defined, and
// times step(). The whole batch at once, as scripts do it; no priorities, no environments: less work than tandem's.
#pragma once

namespace tandem {

extern const char* const kTinyBaseline;
extern const char* const kWebAgentBaseline;

}  // namespace tandem
