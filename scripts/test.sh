#!/usr/bin/env bash
# Builds everything and runs all tests. The last lines are ctest's summary.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/install_dependencies.sh --pytorch
source scripts/mpi_environment.sh

cmake --preset dev
cmake --build --preset dev
# The CUDA backend on processors (docs/gpu.md, "Without a GPU").
cmake --preset cuda-stand-in
cmake --build --preset cuda-stand-in --target cuda_stand_in_tests
ctest --test-dir build/cuda-stand-in -L cuda-stand-in --output-on-failure -j2
ctest --test-dir build/dev --output-on-failure -j2
