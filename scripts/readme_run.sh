#!/usr/bin/env bash
# Repeats the run that README.md shows. Usage:
#   scripts/readme_run.sh [BUILD_DIR]            prints it (default build/release)
#   scripts/readme_run.sh [BUILD_DIR] --update   on an idle machine: writes what is printed into README.md, draws its
#                                                pictures from that very run (needs Debian's chromium, python3-pil), and
#                                                writes the sessions of docs/tutorial.md too
#   --anyway                                     also on a busy machine; the output has a note that says so
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=build/release update="" anyway=""
for argument in "$@"; do
  case $argument in
    --update) update=yes ;;
    --anyway) anyway=yes ;;
    -*) echo "$0: unknown argument $argument" >&2; exit 2 ;;
    *) build=$argument ;;
  esac
done

# Measured times, and predictions from measured kernels, mean little while other programs run.
read -r load _ </proc/loadavg
if [ -n "$update" ] && [ -z "$anyway" ] && awk "BEGIN {exit !($load > 0.3)}"; then
  echo "$0: the machine is busy (load average $load): wait until it is idle, or give --anyway" >&2
  exit 3
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
session=(/usr/bin/python3 tests/integration/tutorial_test.py "$build" --page README.md --folder "$folder")
if [ -n "$update" ]; then
  "${session[@]}" --update
  scripts/report_pictures.sh "$folder/plan.html"
  /usr/bin/python3 tests/integration/tutorial_test.py "$build" --update --page docs/tutorial.md
else
  "${session[@]}" --print
fi
