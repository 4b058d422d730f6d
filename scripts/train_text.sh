#!/usr/bin/env bash
# Trains RNNLM at an eighth of its width for three epochs on the text of Debian's licenses under four strategies, on one
# and on two ranks, with the same seed; prints each epoch's mean loss and perplexity and writes them to
# docs/results/rnnlm-text.md.
# Usage: scripts/train_text.sh [BUILD_DIR] [EPOCHS] [RESULT_FILE]
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/release}
epochs=${2:-3}
result=${3:-docs/results/rnnlm-text.md}
steps=20 vocabulary=1000 batch=8 rate=1.0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source scripts/mpi_environment.sh
scripts/text_data.py "$work/data" --steps "$steps" --vocabulary "$vocabulary" | sed 's/^[^:]*: //' | tee "$work/text"
graph=$(scripts/generate_graphs.py rnnlm --width 0.125 --steps "$steps" --vocabulary "$vocabulary" \
  --batch "$batch" --out "$work")

search() { # NAME RANKS ARGUMENTS...
  "$build/ffsearch" --graph "$graph" --topo "topologies/local-cpu-$2.json" --cost analytic --quiet \
    --out "$work/$1.json" "${@:3}"
}
search one-device 1 --algorithm data-parallel
search data-parallel 2 --algorithm data-parallel
search searched 2 --seed 1 --proposals 5000
search by-hand 2 --algorithm data-parallel
# What a person might try: words and units are split, so that no large parameter is synchronized; the losses by sample.
/usr/bin/python3 - "$work/by-hand.json" <<'PY'
import json, sys
with open(sys.argv[1]) as file:
    strategy = json.load(file)
split = {"embedding": "channel", "lstm": "hidden", "linear": "channel", "softmax_cross_entropy": "sample"}
strategy["configurations"] = [
    {"operators": operator["name"], "degrees": {split[operator["type"]]: 2}, "devices": "0-1"}
    for operator in strategy["graph"]["operators"]]
strategy.pop("issue_order", None)
with open(sys.argv[1], "w") as file:
    json.dump(strategy, file, indent=1)
PY

run() { # NAME RANKS
  mpirun -n "$2" "$build/ffexec" --strategy "$work/$1.json" --data "$work/data/train" \
    --eval "$work/data/test" --epochs "$epochs" --lr "$rate" --momentum 0.9 --seed 1 --json >"$work/$1.result"
}
run one-device 1
run data-parallel 2
run searched 2
run by-hand 2
/usr/bin/python3 - "$work" "$result" "$epochs" "$batch" "$rate" <<'PY'
import json, math, os, sys
work, path, epochs, batch, rate = sys.argv[1:]
names = [("one-device", 1), ("data-parallel", 2), ("searched", 2), ("by-hand", 2)]
results = {}
for name, ranks in names:
    with open(f"{work}/{name}.result") as file:
        results[name] = json.load(file)
with open(f"{work}/text") as file:
    text = file.read().strip()
reference = results["one-device"]
count = len(reference["epoch_losses"])


def cell(loss):
    return f"{loss:.6f} ({math.exp(loss):.2f})"


lines = ["| strategy | ranks | " + " | ".join(f"epoch {e + 1}" for e in range(count))
         + " | test | largest relative difference |",
         "|---|---|" + "---|" * (count + 2)]
worst = 0
for name, ranks in names:
    result = results[name]
    pairs = list(zip(result["epoch_losses"] + [result["eval"]["loss"]],
                     reference["epoch_losses"] + [reference["eval"]["loss"]]))
    difference = max(abs(a - b) / b for a, b in pairs)
    worst = max(worst, difference)
    lines.append(f"| {name} | {ranks} | " + " | ".join(cell(loss) for loss, _ in pairs) + f" | {difference:.1e} |")
table = "\n".join(lines)
summary = f"largest relative difference of a loss: {worst:.1e} (allowed: 1e-3)"
print(f"\n{table}\n\n{summary}")
if not worst <= 1e-3:
    sys.exit(1)
content = f"""# A recurrent language model on real text

Results, for readers who want to know whether strategies change the training of a recurrent network. After reading you
know that each strategy learns real text with the same losses except for rounding, on CPU ranks.

The network is RNNLM (graphs/rnnlm.json) at an eighth of its width: 2 LSTM layers of 256 units unrolled for 20 steps.
The text is the licenses of Debian's package base-files: {text}
(every tenth sample). The licenses repeat each other, so that the test is an easy one. Batch {batch}, learning rate
{rate}, momentum 0.9, seed 1; states start from zero in each sample. The table has the mean loss of each epoch, with its
perplexity in parentheses, and that of the test samples after the last epoch. `by-hand` splits embedding and scores by
channel and the LSTM layers by hidden unit. Repeat with `scripts/train_text.sh`.

{table}

{summary[0].upper()}{summary[1:]}.
"""
with open(path + ".tmp", "w") as file:
    file.write(content)
os.replace(path + ".tmp", path)
PY
