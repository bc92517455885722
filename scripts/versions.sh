# scripts/versions.sh -- everything that set-up takes from PyPI, with its version, in one place. Sourced, never run.
#
# Equal bits need equal libraries, so torch and what it computes with are pinned to the last digit; the versions of the
# nvidia wheels are those that torch 2.11.0 itself names (cuda-toolkit 13.0.2).

TORCH_VERSION=2.11.0
# Without a GPU libtorch_cpu needs these two and no more: 1.0 GB instead of 4.5.
TORCH_SLIM_WHEELS="nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85"
# nvcc and the headers it wants: CUDA=pypi, or a GPU on a machine without a CUDA 13 toolkit.
NVCC_WHEELS="nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-cuda-runtime==13.0.96"
BUILD_WHEELS="cmake>=4,<5 ninja==1.13.*"
# Read back what we write, with the programs that users will read it with; and one clang-format for every distribution.
# QuantLib judges our option prices, python-chess our games, scikit-learn our F1; pyarrow writes and reads Parquet.
# NVML by others: its reader judges our played machines, its header our declarations. cuobjdump reads what kernels take.
TEST_WHEELS="nvidia-cuda-cuobjdump==13.2.86 numpy==2.2.6 safetensors==0.8.0 tensorboard==2.21.0 clang-format==14.0.6 nvidia-ml-py==13.615.71 nvidia-nvml-dev==13.4.92 QuantLib==1.44 pyarrow==26.0.1 chess==1.11.2 scikit-learn==1.7.2"
# Environments in Python for `tandem train dqn`: 85 MB with numpy, nothing of it compiled here.
GYM_WHEELS="numpy==2.2.6 gymnasium==1.4.0"
LINT_WHEELS="clang-format==14.0.6"
# What torchrun imports beside torch itself, which set-up installs without its needs where there is no GPU.
TORCHRUN_WHEELS="sympy==1.14.0"
# The oldest driver that runs CUDA 13 (NVIDIA's release notes of CUDA 13.0).
OLDEST_DRIVER=580.65.06
