#!/usr/bin/env bash
# Trains LeNet-5 on Fashion-MNIST for three epochs under four strategies on 1, 2 and 4 ranks and prints each epoch's
# mean loss and the accuracy on the 10,000 test images: every strategy trains the same function, so the curves agree.
# Usage: scripts/strategies_agree.sh [BUILD_DIR] [EPOCHS]
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/release}
epochs=${2:-3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source scripts/mpi_environment.sh
scripts/fashion_mnist.py >/dev/null

search() { # NAME RANKS ARGUMENTS...
  "$build/ffsearch" --graph graphs/lenet.json --topo "topologies/local-cpu-$2.json" --cost analytic --quiet \
    --out "$work/$1.json" "${@:3}"
}
search one-device 1 --algorithm data-parallel
search data-parallel 2 --algorithm data-parallel
search searched 2 --seed 1 --proposals 20000
search by-hand 4 --algorithm data-parallel
# The edit that a person would make: conv1 by image height (halo rows are exchanged), conv2 by channel, fc1 by channel
# and sample.
/usr/bin/python3 - "$work/by-hand.json" <<'PY'
import json, sys
with open(sys.argv[1]) as file:
    strategy = json.load(file)
strategy["configurations"] += [  # the first is that of all others
    {"operators": "conv1", "degrees": {"height": 4}, "devices": "0-3"},
    {"operators": "conv2", "degrees": {"channel": 3}, "devices": [3, 1, 0]},
    {"operators": "fc1", "degrees": {"sample": 2, "channel": 2}, "devices": "0-3"}]
with open(sys.argv[1], "w") as file:
    json.dump(strategy, file, indent=1)
PY

run() { # NAME RANKS
  mpirun -n "$2" "$build/ffexec" --strategy "$work/$1.json" --data data/fashion-mnist/train \
    --eval data/fashion-mnist/test --epochs "$epochs" --lr 0.05 --momentum 0.9 --seed 1 --json >"$work/$1.result"
}
run one-device 1
run data-parallel 2
run searched 2
run by-hand 4
/usr/bin/python3 - "$work" <<'PY'
import json, sys
names = [("one-device", 1), ("data-parallel", 2), ("searched", 2), ("by-hand", 4)]
results = {}
for name, ranks in names:
    with open(f"{sys.argv[1]}/{name}.result") as file:
        results[name] = json.load(file)
epochs = len(results["one-device"]["epoch_losses"])
print("| strategy | ranks | " + " | ".join(f"epoch {e + 1}" for e in range(epochs))
      + " | test loss | top-1 | largest relative difference |")
print("|---|---|" + "---|" * (epochs + 3))
reference = results["one-device"]["epoch_losses"]
worst = 0
for name, ranks in names:
    result = results[name]
    difference = max(abs(a - b) / b for a, b in zip(result["epoch_losses"], reference))
    worst = max(worst, difference)
    losses = " | ".join(f"{loss:.6f}" for loss in result["epoch_losses"])
    test = result["eval"]
    print(f"| {name} | {ranks} | {losses} | {test['loss']:.6f} | {100 * test['top1']:.2f} % | {difference:.1e} |")
print(f"\nlargest relative difference of an epoch's mean loss: {worst:.1e} (allowed: 1e-3)")
sys.exit(worst > 1e-3)
PY
