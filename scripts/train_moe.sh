#!/usr/bin/env bash
# Trains graphs/moe-tiny.json for three epochs on the text of Debian's licenses on two ranks under four strategies with
# the same seed: data-parallel, gshard (experts on both ranks), found by search, and annotated by hand; prints each
# epoch's mean loss and perplexity and writes them to docs/results/moe-text.md.
# Usage: scripts/train_moe.sh [BUILD_DIR] [EPOCHS] [RESULT_FILE]
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/release}
epochs=${2:-3}
result=${3:-docs/results/moe-text.md}
rate=0.02
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source scripts/mpi_environment.sh
scripts/text_data.py "$work/data" --steps 20 --vocabulary 1000 | sed 's/^[^:]*: //' | tee "$work/text"
cat >"$work/annotations.json" <<'JSON'
{"format": "ffannotations/1",
 "annotations": [
  {"tensors": "layer2.norm2", "split": {"sample": 2}},
  {"parameters": "layer2.gate.weight", "replicate": true},
  {"operators": "layer2.expand", "split": {"expert": 2}}]}
JSON

search() { # NAME ARGUMENTS...
  "$build/ffsearch" --graph graphs/moe-tiny.json --topo topologies/local-cpu-2.json --cost analytic --quiet \
    --out "$work/$1.json" "${@:2}"
}
search data-parallel --algorithm data-parallel
search gshard --algorithm gshard
search searched --seed 1 --proposals 5000
search annotated --annotations "$work/annotations.json" --algorithm propagate
for name in data-parallel gshard searched annotated; do
  mpirun -n 2 "$build/ffexec" --strategy "$work/$name.json" --data "$work/data/train" --eval "$work/data/test" \
    --epochs "$epochs" --lr "$rate" --momentum 0.9 --seed 1 --json >"$work/$name.result"
done
/usr/bin/python3 - "$work" "$result" "$rate" <<'PY'
import json, math, os, sys
work, path, rate = sys.argv[1:]
results = {}
for name in ("data-parallel", "gshard", "searched", "annotated"):
    with open(f"{work}/{name}.result") as file:
        results[name] = json.load(file)
with open(f"{work}/text") as file:
    text = file.read().strip()
reference = results["data-parallel"]
count = len(reference["epoch_losses"])
lines = ["| strategy | " + " | ".join(f"epoch {e + 1}" for e in range(count))
         + " | test | largest relative difference of an epoch | of the test |", "|---|" + "---|" * (count + 3)]
worst = 0
for name, result in results.items():
    epochs = [abs(a - b) / b for a, b in zip(result["epoch_losses"], reference["epoch_losses"])]
    test = abs(result["eval"]["loss"] - reference["eval"]["loss"]) / reference["eval"]["loss"]
    worst = max(worst, test, *epochs)
    losses = [f"{loss:.5f} ({math.exp(loss):.1f})" for loss in result["epoch_losses"] + [result["eval"]["loss"]]]
    lines.append(f"| {name} | " + " | ".join(losses) + f" | {max(epochs):.1e} | {test:.1e} |")
table = "\n".join(lines)
print(f"\n{table}\n\nlargest relative difference: {worst:.1e} (allowed: 1e-3)")
if not worst <= 1e-3:
    sys.exit(1)
content = f"""# A mixture of experts on real text

Results, for readers who want to know whether strategies change the training of a mixture of experts. After reading you
know that each strategy learns real text with nearly the same losses, on two CPU ranks.

The network is graphs/moe-tiny.json: two transformer layers, the second with four experts, top-2 gating with random
routing, and the load-balancing loss. The text is the licenses of Debian's package base-files: {text}.
Two ranks train with learning rate {rate}, momentum 0.9 and seed 1. The table has the mean loss of each epoch (both
losses), with its exponential in parentheses, and that of the test samples after the last epoch. `annotated` is
completed by `propagate` from three annotations. Repeat with `scripts/train_moe.sh`.

Which expert a token goes to is a step function of the logits. Strategies that add in another order differ by rounding.
Once rounding changes a decision, the runs diverge; with a higher rate they diverge faster (at 0.5 by some per cent).

{table}
"""
temporary = path + ".tmp"
with open(temporary, "w") as file:
    file.write(content)
os.replace(temporary, path)
PY
