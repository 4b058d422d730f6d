#!/usr/bin/env bash
# What continuous integration checks besides scripts/test.sh: each stage's outcome and time, at last how many passed.
# Usage: scripts/check.sh [STAGE ...]; without arguments, all but the second:
#   format  line lengths and clang-format
#   alone   each source compiles by itself, which the unity build of scripts/test.sh ci does not show: a seventh by the
#           day; takes minutes and runs only when it is named
#   asan    clang compiles both programs, without MPI, and the unit tests, warnings being errors; the tests pass under
#           the address and undefined-behaviour sanitizers: every third one by the day, all with FF_ALL_TESTS=1
#   fuzz    libFuzzer draws networks and changes: delta simulation equals full simulation; and strategy files: they are
#           refused, or read back as they were written; and files of each of the other formats. In a fresh checkout the
#           same inputs every time, a minute or less each; for others, run the targets without -seed and -runs
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

format() { /usr/bin/python3 tests/format_test.py; }

alone() { tests/sources_alone.py; }

# Without what takes minutes there and adds no other code: long proofs and searches, the executor's random cases in
# variants, and comparisons of simulators that the fuzz target makes too.
asan() {
  local tests=(test_common test_kernels test_search test_executor)
  cmake --preset fuzz  # which has the sanitizers and no MPI: compiled once for both stages
  cmake --build --preset fuzz --target ffsearch ffexec "${tests[@]}"
  local without='optimum of LeNet|memory that turns to NaN|staged transfers|one shared order|rows of many elements'
  without+='|random annotations|no neighbour is better|equals full simulation (in every|where parameters)'
  local every=(-I "$(($(date +%s) / 86400 % 3 + 1)),,3")
  [[ -z ${FF_ALL_TESTS:-} ]] || every=()
  ctest --test-dir build/fuzz --output-on-failure -j2 -R '^(common|kernels|search|executor):' -E "$without" \
    "${every[@]}"
}

# One target, with its output at the end: two run at a time.
fuzz_target() {
  local target=$1 runs=$2 cases=$3 code=0
  shift 3
  mkdir -p "build/fuzz/${target}_corpus"
  "build/fuzz/tests/${target}_fuzz" -seed=1 -verbosity=0 -print_final_stats=1 "-runs=$runs" "$@" \
    "build/fuzz/${target}_corpus" "$cases" >"build/fuzz/${target}.log" 2>&1 || code=$?
  echo "-- $target"
  cat "build/fuzz/${target}.log"
  return $code
}

fuzz() {
  cmake --preset fuzz
  cmake --build --preset fuzz
  local format cases
  {
    echo delta 500 tests/fuzz/cases
    echo strategy 400000 tests/fuzz/strategy_cases -max_len=512
    for cases in tests/fuzz/file_cases/* tests/fuzz/onnx_cases; do
      format=$(basename "${cases%_cases}")
      [[ -x build/fuzz/tests/${format}_fuzz ]] || continue  # onnx: without its libraries
      # An ONNX file of a loop of 16,384 iterations takes seconds with the sanitizers, more beside other programs.
      echo "$format" 20000 "$cases" -timeout=60 -rss_limit_mb=4096
    done
  } | xargs -P 2 -L 1 bash -c 'fuzz_target "$@"' fuzz_target
}
export -f fuzz_target

stages=("$@")
[[ $# -gt 0 ]] || stages=(format asan fuzz)
for stage in "${stages[@]}"; do
  declare -F "$stage" >/dev/null || { echo "check.sh: no stage $stage" >&2; exit 2; }
done
scripts/install_dependencies.sh --checks
passed=0
for stage in "${stages[@]}"; do
  printf '\n== %s\n' "$stage"
  began=$SECONDS
  set +e
  (set -e; "$stage")
  code=$?
  set -e
  if [[ $code -eq 0 ]]; then passed=$((passed + 1)) outcome=passed; else outcome="failed (exit $code)"; fi
  echo "== $stage: $outcome after $((SECONDS - began)) s"
done
printf '\n%d passed, %d failed\n' "$passed" $((${#stages[@]} - passed))
[[ $passed -eq ${#stages[@]} ]]
