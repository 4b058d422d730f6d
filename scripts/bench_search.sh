#!/usr/bin/env bash
# Proposals per second of the search, delta against full simulation and against FlexFlow's published simulator, on one
# thread; or of two builds, or of several threads and one, in turn. Usage:
#   scripts/bench_search.sh [--devices 4 16 64] [--init data-parallel random] [--full-proposals 2000]
#     [--growth [GPUS ...]]
#     [--against BUILD | --threads N [--rounds 5]] [--out FILE]
# Prints a Markdown table a start; see docs/results/search-speed.md.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ ! -x build/release/ffsearch ]; then
  cmake --preset release -DFF_CUDA=OFF >&2
  cmake --build --preset release --target ffsearch >&2
fi
exec /usr/bin/python3 scripts/bench_search.py "$@"
