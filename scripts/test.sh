#!/usr/bin/env bash
# Builds everything and runs all tests, those of the CUDA backend on processors. The last lines are ctest's summary.
# Usage: scripts/test.sh [PRESET]; PRESET: dev, or ci, which compiles from scratch in a third of the time
# Random cases of the CUDA backend change with the day. For those of another day: FF_GPU_TEST_SEED=20261231
# scripts/test.sh. scripts/cuda_stand_in.sh runs more of them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=${1:-dev}
scripts/install_dependencies.sh --pytorch
source scripts/mpi_environment.sh

cmake --preset "$preset"
cmake --build --preset "$preset"
passed=0
FF_GPU_TEST_CASES=${FF_GPU_TEST_CASES:-4} scripts/cuda_stand_in.sh || passed=$?
ctest --test-dir "build/$preset" --output-on-failure -j2 || passed=$?
[[ $passed -eq 0 ]] || echo "test.sh: tests failed, of the CUDA backend or of the rest: see both summaries" >&2
exit $passed
