// nn/portable_vector.h -- keeps libtorch 2.11 usable on ARM CPUs without SVE.
#pragma once

namespace tandem {

// libtorch 2.11 for aarch64 carries its copy of std::vector<at::Tensor>'s growth compiled for SVE, and the dynamic
// linker lets everybody use it: nn::LSTM's constructor dies with SIGILL on CPUs without it. Our own copy, exported from
// the program (-rdynamic), is found first. This links it in and tries it: it makes an LSTM, and where that is an
// illegal instruction all the same, it ends the program with a message and exit code 3 instead of a bare signal.
void use_portable_vector();

}  // namespace tandem
