#!/usr/bin/env bash
# Builds everything and runs all tests. The last lines are ctest's summary. Of the CUDA backend on processors some
# random cases of each kind run, others each day; scripts/cuda_stand_in.sh runs more.
# Usage: scripts/test.sh [PRESET]; PRESET: dev, or ci, which is quicker from scratch (unity build)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=${1:-dev}
scripts/install_dependencies.sh --pytorch
source scripts/mpi_environment.sh

cmake --preset "$preset"
cmake --build --preset "$preset"
ctest --test-dir "build/$preset" --output-on-failure -j3  # many tests wait for ranks to start and to end
