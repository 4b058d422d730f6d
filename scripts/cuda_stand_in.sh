#!/usr/bin/env bash
# Tests of the CUDA backend on processors, against a stand-in for CUDA (docs/gpu.md, "Without a GPU").
# Environment: FF_GPU_TEST_CASES: random cases of each operator, and of each set of ranks (60); FF_GPU_TEST_SEED: which
# ones (the date). The seed is printed: with it, the same cases run again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export FF_GPU_TEST_SEED=${FF_GPU_TEST_SEED:-$(date +%Y%m%d)} FF_GPU_TEST_CASES=${FF_GPU_TEST_CASES:-60}
source scripts/mpi_environment.sh
cmake --preset cuda-stand-in
cmake --build --preset cuda-stand-in --target cuda_stand_in_tests
echo "CUDA backend on processors: FF_GPU_TEST_SEED=$FF_GPU_TEST_SEED FF_GPU_TEST_CASES=$FF_GPU_TEST_CASES"
ctest --test-dir build/cuda-stand-in --output-on-failure -j2 -L cuda-stand-in
