#!/usr/bin/env bash
# Less and less memory for a small network on two CPU ranks: what the search finds, and what the ranks allocate.
# Usage: scripts/slicing.sh [BUILD_DIR]    prints the table of docs/results/slicing.md
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/release}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source scripts/mpi_environment.sh
cat >"$work/graph.json" <<'JSON'
{"format": "ffgraph/1", "name": "features", "batch_size": 64,
 "inputs": [{"name": "x", "shape": ["batch", 256, 16], "dtype": "f32"},
            {"name": "label", "shape": ["batch"], "dtype": "i32"}],
 "operators": [
  {"name": "features", "type": "linear", "inputs": ["x"], "attributes": {"out_features": 512}},
  {"name": "relu", "type": "relu", "inputs": ["features"]},
  {"name": "mean", "type": "mean", "inputs": ["relu"]},
  {"name": "out", "type": "linear", "inputs": ["mean"], "attributes": {"out_features": 10}},
  {"name": "loss", "type": "softmax_cross_entropy", "inputs": ["out", "label"]}]}
JSON
echo "| memory of a rank, MB | found | most parts of an operator | predicted, ms | predicted MB | allocated MB \
| against one device |"
echo "|---|---|---|---|---|---|---|"
for megabytes in 60 50 45 40 37; do
  /usr/bin/python3 - "$work" "$megabytes" <<'PY'
import json, sys
work, megabytes = sys.argv[1:]
with open("topologies/local-cpu-2.json") as file:
    topology = json.load(file)
topology.pop("$schema", None)
for model in topology["device_models"].values():
    model["memory_bytes"] = int(megabytes) * 10**6
with open(f"{work}/topology.json", "w") as file:
    json.dump(topology, file)
PY
  "$build/ffsearch" --graph "$work/graph.json" --topo "$work/topology.json" --cost analytic --seed 1 --proposals 10000 \
    --out "$work/strategy.json" --json >"$work/found.json"
  mpirun -n 2 "$build/ffexec" --strategy "$work/strategy.json" --iterations 3 --verify --json \
    >"$work/ran.json" 2>/dev/null
  /usr/bin/python3 - "$work" "$megabytes" <<'PY'
import json, sys
work, megabytes = sys.argv[1:]
found, ran, strategy = (json.load(open(f"{work}/{name}.json")) for name in ("found", "ran", "strategy"))
parts = 1
for configuration in strategy["configurations"]:
    product = 1
    for degree in configuration["degrees"].values():
        product *= degree
    parts = max(parts, product)
note = found["note"] if found["fits_memory"] else found["note"] + "; does not fit"
print(f"| {megabytes} | {note} | {parts} | {found['predicted_us'] / 1e3:.2f} | {max(found['memory_bytes']) / 1e6:.1f} "
      f"| {max(ran['memory_bytes']) / 1e6:.1f} | {ran['verified']['max_relative_error']:.1e} |")
PY
done
