#!/usr/bin/env bash
# Builds everything and runs all tests. The last lines are ctest's summary.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/install_dependencies.sh --pytorch
source scripts/mpi_environment.sh

cmake --preset dev
cmake --build --preset dev
ctest --test-dir build/dev --output-on-failure -j2
