#!/usr/bin/env bash
# Predicted against measured iteration time: LeNet and AlexNet (batch 16) on one and on two CPU ranks, three strategies
# each. Usage: scripts/accuracy.sh [BUILD_DIR] [ITERATIONS_SCALE]. Prints a Markdown table; everything is measured anew
# in one run.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/release}
scale=${2:-1}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source scripts/mpi_environment.sh

exec /usr/bin/python3 scripts/accuracy.py "$build" "$work" "$scale"
