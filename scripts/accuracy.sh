#!/usr/bin/env bash
# Predicted against measured iteration time: LeNet and AlexNet (batch 16) on one and on two CPU ranks, three strategies each.
# Usage: scripts/accuracy.sh [BUILD_DIR] [ITERATIONS_SCALE]. Prints a Markdown table; everything is measured anew in one run.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/release}
scale=${2:-1}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
if [ "$(id -u)" -eq 0 ]; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi

exec /usr/bin/python3 scripts/accuracy.py "$build" "$work" "$scale"
