// nn/channels_last.h -- convolution weights in channels-last memory, where GPUs are fastest with them.
#pragma once

namespace torch::nn {
class Module;
}

namespace tandem {

// Lays the weights of Conv2d, Conv3d and their transposed kinds out channels last, before the model is given to the
// engine. Names, shapes, initial values, checkpoints and the digest are as without it: files hold them row by row.
// Give the model channels-last inputs too: x.contiguous(at::MemoryFormat::ChannelsLast).
void use_channels_last(torch::nn::Module& model);

}  // namespace tandem
