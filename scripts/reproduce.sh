#!/usr/bin/env bash
# Redoes a table or figure of the FlexFlow paper (MLSys 2019): data (JSON), a figure (PNG) and a Markdown table in
# docs/results/. Usage:
#   scripts/reproduce.sh table5|figure6|figure7|figure9|figure10|figure11|optimal|cases|ratios [--quick]
#     [--budget SECONDS] [--workers N] [--batch device|total] [--synchronization all-reduce|parameter-server] [--redraw]
#     [--build DIR]
# Needs python3-matplotlib: scripts/install_dependencies.sh --plots. docs/results/reproduction.md says what came out.
set -euo pipefail
cd "$(dirname "$0")/.."
export PYTHONDONTWRITEBYTECODE=1
exec /usr/bin/python3 scripts/reproduction/reproduce.py "$@"
