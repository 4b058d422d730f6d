#!/usr/bin/env bash
# From a fresh checkout to a trained network: builds, measures this machine, searches a strategy for LeNet on two CPU
# ranks, trains with it on Fashion-MNIST, and compares the prediction with what it took. All it makes is in build/ and
# data/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

ranks=2
out=build/quickstart
ffsearch=build/release/ffsearch
ffexec=build/release/ffexec

step() { printf '\n== %s\n' "$*"; }

source scripts/mpi_environment.sh

step "install"
scripts/install_dependencies.sh

step "build"
cmake --preset release >/dev/null
cmake --build --preset release --target ffsearch ffexec

step "data"
scripts/fashion_mnist.py data/fashion-mnist
mkdir -p "$out"

step "measure this machine: $ranks ranks and the memory between them"
mpirun -n "$ranks" "$ffexec" --calibrate --out "$out/topology.json"

step "search a strategy"
"$ffsearch" --graph graphs/lenet.json --topo "$out/topology.json" --seed 1 --budget 10s --cost measure \
  --out "$out/strategy.json"

step "train, and compare the prediction with what it takes"
mpirun -n "$ranks" "$ffexec" --strategy "$out/strategy.json" --data data/fashion-mnist/train \
  --eval data/fashion-mnist/test --epochs 3 --lr 0.05 --momentum 0.9
