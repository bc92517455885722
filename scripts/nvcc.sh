# scripts/nvcc.sh -- which nvcc there is, and whether there is a GPU. Sourced, never run.

# The machine's nvcc if it is of CUDA 13, the version that torch is built with; an older one is as good as none.
machine_nvcc() {
  local nvcc
  for nvcc in "${CUDACXX:-}" "${CUDA_HOME:+$CUDA_HOME/bin/nvcc}" nvcc /usr/local/cuda/bin/nvcc; do
    [[ -n $nvcc ]] && nvcc=$(command -v "$nvcc") && "$nvcc" --version 2>/dev/null | grep -q 'release 13\.' && { echo "$nvcc"; return 0; }
  done
  return 1
}

# The one that set-up took from PyPI.
wheel_nvcc() { compgen -G "$PWD/.venv/lib/python3*/site-packages/nvidia/cu13/bin/nvcc" | head -n 1; }

gpu_here() { compgen -G '/dev/nvidia[0-9]*' >/dev/null || [[ -e /dev/nvidiactl || -e /dev/dxg ]] || command -v nvidia-smi >/dev/null; }
