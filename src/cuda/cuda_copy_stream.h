// cuda/cuda_copy_stream.h -- uploads on a CUDA stream beside the one where work is queued.
#pragma once

#include <cuda_runtime.h>

#include <memory>

#include "engine/copy_stream.h"

namespace tandem::cuda {

// `work`: the stream whose order with the uploads is kept. Failed calls throw CudaError.
std::unique_ptr<CopyStream> make_copy_stream(cudaStream_t work);

}  // namespace tandem::cuda
