#!/usr/bin/env bash
# Builds everything and runs all tests. The last lines are ctest's summary.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/install_dependencies.sh --pytorch
if [[ $EUID -eq 0 ]]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
export OMPI_MCA_rmaps_base_oversubscribe=1 OMP_NUM_THREADS=1

cmake --preset dev
cmake --build --preset dev
ctest --test-dir build/dev --output-on-failure -j2
