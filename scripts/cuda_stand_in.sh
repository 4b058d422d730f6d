#!/usr/bin/env bash
# Tests of the CUDA backend on processors, against a stand-in for CUDA (docs/gpu.md, "Without a GPU"): many cases, where
# scripts/test.sh runs a few of each kind. Usage: scripts/cuda_stand_in.sh [PRESET]; PRESET: dev, or ci
# Environment: FF_GPU_TEST_CASES: random cases of each operator, and of each set of ranks (60); FF_GPU_TEST_SECONDS: at
# most so long for a set of ranks (40); FF_GPU_TEST_SEED: which ones (the date). The seed is printed: with it, the same
# cases run again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=${1:-dev}
export FF_GPU_TEST_SEED=${FF_GPU_TEST_SEED:-$(date +%Y%m%d)} FF_GPU_TEST_CASES=${FF_GPU_TEST_CASES:-60}
export FF_GPU_TEST_SECONDS=${FF_GPU_TEST_SECONDS:-40}
source scripts/mpi_environment.sh
cmake --preset "$preset"
cmake --build --preset "$preset" --target cuda_stand_in_tests
echo "CUDA backend on processors: FF_GPU_TEST_SEED=$FF_GPU_TEST_SEED FF_GPU_TEST_CASES=$FF_GPU_TEST_CASES"
ctest --test-dir "build/$preset" --output-on-failure -j2 -L cuda-stand-in
